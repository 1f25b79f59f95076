// drivers/cuda/memory.cpp: allocations, and the table that frees what is left at the end.
#include "memory.h"

#include <algorithm>

namespace backplane::driver::cuda {
namespace {

// More than any machine has: CUDA need not say "out of memory" of a size that overflows when it is rounded.
constexpr uint64_t kMostHostBytes = uint64_t{1} << 47;

}  // namespace

DeviceMemory::DeviceMemory(const Library& cuda, Device& device, bool managed)
    : cuda_(cuda), device_(device), managed_(managed), live_([this](uint64_t address) { release(address); }) {
  cuda_.check(cuda_.cuDeviceTotalMem_v2(&total_, device.handle()), "cuDeviceTotalMem");
}

uint64_t DeviceMemory::alloc(uint64_t bytes) {
  if (bytes > total_) {
    throw Error(BP_OUT_OF_MEMORY, "alloc: " + std::to_string(bytes) + " bytes of device " + std::to_string(device_.ordinal()) +
                                      ", which has " + std::to_string(total_));
  }
  const auto take = [&](size_t size) {
    CUdeviceptr address = 0;
    if (managed_) {
      device_.check(cuda_.cuMemAllocManaged(&address, size, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
    } else {
      device_.check(cuda_.cuMemAlloc_v2(&address, size), "cuMemAlloc");
    }
    return address;
  };
  CUdeviceptr native = take(std::max<uint64_t>(bytes, 1)), address = native;
  // CUDA promises 256 bytes, and gives 512.
  if (native % BP_MIN_ALIGNMENT != 0) {
    cuda_.cuMemFree_v2(native);
    native = take(bytes + BP_MIN_ALIGNMENT);
    address = (native + BP_MIN_ALIGNMENT - 1) & ~uint64_t{BP_MIN_ALIGNMENT - 1};
  }
  blocks_.insert(address, bytes, {native, false});
  return live_.add(address);
}

void DeviceMemory::adopt(uint64_t address, uint64_t bytes) {
  blocks_.insert(address, bytes, {address, true});
  live_.add(address);
}

uint64_t DeviceMemory::bytes_of(uint64_t address, const char* what) const {
  const auto place = blocks_.find(address);
  if (!place || place->offset != 0 || place->handle.foreign) {
    throw Error(BP_INVALID_ARGUMENT, format("%s: 0x%llx is no allocation of device %d", what, wide(address), device_.ordinal()));
  }
  return place->bytes;
}

void DeviceMemory::give_back(uint64_t address, bool foreign, const char* what) {
  const auto place = blocks_.find(address);
  if (!place || place->offset != 0 || place->handle.foreign != foreign) {
    throw Error(BP_INVALID_ARGUMENT, format("%s: 0x%llx was not given by device %d", what, wide(address), device_.ordinal()));
  }
  live_.destroy(address, what);
}

void DeviceMemory::release(uint64_t address) {
  // First out of the table: another thread may get the same address as soon as CUDA has it back.
  const auto place = blocks_.remove(address);
  if (place)
    device_.note(place->handle.foreign ? cuda_.cuIpcCloseMemHandle(place->handle.native) : cuda_.cuMemFree_v2(place->handle.native));
}

HostMemory::HostMemory(const Library& cuda) : cuda_(cuda), live_([this](uint64_t address) { release(address); }) {}

void* HostMemory::alloc(uint64_t bytes) {
  if (bytes > kMostHostBytes) throw Error(BP_OUT_OF_MEMORY, "host_alloc: " + std::to_string(bytes) + " bytes");
  void* memory = nullptr;
  cuda_.check(cuda_.cuMemHostAlloc(&memory, std::max<uint64_t>(bytes, 1), CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  keep(memory, bytes, BP_MEMORY_PINNED);
  return memory;
}

void HostMemory::add(void* memory, uint64_t bytes) {
  if (!memory || bytes == 0) throw Error(BP_INVALID_ARGUMENT, "host_register: memory of 1 byte or more is needed");
  cuda_.check(cuda_.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE), "cuMemHostRegister");
  keep(memory, bytes, BP_MEMORY_REGISTERED);
}

void HostMemory::keep(void* memory, uint64_t bytes, int32_t kind) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  blocks_.insert(address, bytes, kind);
  live_.add(address);
}

void HostMemory::give_back(void* memory, int32_t kind, const char* what) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  const auto place = blocks_.find(address);
  if (!place || place->offset != 0 || place->handle != kind) {
    throw Error(BP_INVALID_ARGUMENT, format("%s: %p was not given to it by this driver", what, memory));
  }
  live_.destroy(address, what);
}

// What CUDA says of it is no news: a context that has failed gives its memory back when it ends.
void HostMemory::release(uint64_t address) {
  const auto place = blocks_.remove(address);
  if (!place) return;
  auto* memory = reinterpret_cast<void*>(address);
  place->handle == BP_MEMORY_PINNED ? cuda_.cuMemFreeHost(memory) : cuda_.cuMemHostUnregister(memory);
}

}  // namespace backplane::driver::cuda
