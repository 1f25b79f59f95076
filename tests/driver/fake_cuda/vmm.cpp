// tests/driver/fake_cuda/vmm.cpp: reserved addresses, created memory, mappings. What no device may reach is without access for the host.
#include <sys/mman.h>
#include <unistd.h>

#include <iterator>

#include "fake.h"

namespace backplane::driver::cuda {
namespace {

constexpr size_t kUnit = size_t{2} << 20;

bool whole(uint64_t value) { return value % kUnit == 0; }

}  // namespace

FAKE(cuMemGetAllocationGranularity, size_t* bytes, const CUmemAllocationProp* prop, int) {
  ENTER();
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kUnit;
  return CUDA_SUCCESS;
}

FAKE(cuMemAddressReserve, CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long) {
  ENTER();
  if (bytes == 0 || !whole(bytes) || !whole(alignment)) return CUDA_ERROR_INVALID_VALUE;
  auto* at = static_cast<char*>(mmap(nullptr, bytes + kUnit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto start = reinterpret_cast<uint64_t>(at), base = (start + kUnit - 1) / kUnit * kUnit;
  if (base > start) munmap(at, base - start);
  munmap(at + (base - start) + bytes, kUnit - (base - start));
  const std::lock_guard lock(state().mutex);
  state().reserved.emplace(base, bytes);
  *address = base;
  return CUDA_SUCCESS;
}

FAKE(cuMemAddressFree, CUdeviceptr address, size_t bytes) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  const auto found = state().reserved.find(address);
  if (found == state().reserved.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  munmap(reinterpret_cast<void*>(address), bytes);
  state().reserved.erase(found);
  return CUDA_SUCCESS;
}

FAKE(cuMemCreate, CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop, unsigned long long) {
  ENTER();
  if (bytes == 0 || !whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (!reserve_bytes(prop->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  static uint64_t next = 1;
  int file = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  state().created.emplace(next, Block{bytes, prop->location.id, Kind::mapped, file});
  *handle = next++;
  return CUDA_SUCCESS;
}

FAKE(cuMemRelease, CUmemGenericAllocationHandle handle) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  const auto found = state().created.find(handle);
  if (found == state().created.end()) return CUDA_ERROR_INVALID_VALUE;
  state().used[static_cast<size_t>(found->second.ordinal)] -= found->second.bytes;
  close(found->second.file);
  state().created.erase(found);
  return CUDA_SUCCESS;
}

FAKE(cuMemMap, CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  const auto found = state().created.find(handle);
  const auto next = state().reserved.upper_bound(address);
  if (found == state().created.end() || found->second.bytes != bytes || offset != 0 || next == state().reserved.begin() ||
      address + bytes > std::prev(next)->first + std::prev(next)->second) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, found->second.file, 0);
  state().blocks.emplace(address, Block{bytes, found->second.ordinal, Kind::mapped, -1});
  return CUDA_SUCCESS;
}

FAKE(cuMemUnmap, CUdeviceptr address, size_t bytes) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  const auto found = state().blocks.find(address);
  if (found == state().blocks.end() || found->second.kind != Kind::mapped || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  state().blocks.erase(found);
  return CUDA_SUCCESS;
}

FAKE(cuMemSetAccess, CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  const auto found = state().blocks.find(address);
  if (found == state().blocks.end() || found->second.kind != Kind::mapped || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    record("  access of " + std::to_string(access[i].location.id) + ": " + std::to_string(access[i].flags));
    if (access[i].location.id != found->second.ordinal) continue;
    const int protection = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE : PROT_NONE;
    mprotect(reinterpret_cast<void*>(address), bytes, protection);
  }
  return CUDA_SUCCESS;
}

}  // namespace backplane::driver::cuda
