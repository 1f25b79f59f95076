// drivers/opencl/memory.cpp: what both kinds of device memory share: checked ranges and accounts; pinned memory.
#include "memory.h"

#include "../engine/fill.h"

namespace backplane::driver::opencl {

std::unique_ptr<Memory> make_memory(Context& context, MemoryKind kind) {
  return kind == MemoryKind::buffers ? make_buffers(context) : make_pointers(context, kind);
}

uint64_t Memory::alloc(Device& device, uint64_t bytes) {
  device.take(bytes);
  try {
    return make(device, bytes);
  } catch (...) {
    device.give(bytes);
    throw;
  }
}

void Memory::free(int32_t device, uint64_t address) {
  const auto found = find(address);
  if (!found || found->offset != 0 || found->handle.device->index() != device) {
    throw Error(BP_INVALID_ARGUMENT, format("free: 0x%llx is not an address of alloc on device %d", wide(address), device));
  }
  const auto removed = remove(address);
  if (!removed) throw Error(BP_INVALID_ARGUMENT, "free: another thread freed the address");
  destroy(removed->handle);
  removed->handle.device->give(removed->bytes);
}

Memory::Found Memory::range(Place place, uint64_t bytes, const char* what) const {
  Found found = range_of(place.address, bytes, what);
  if (found.handle.device->index() != place.device) {
    throw Error(BP_INVALID_ARGUMENT, format("%s: 0x%llx is of device %d, not of device %d", what, wide(place.address),
                                            found.handle.device->index(), place.device));
  }
  return found;
}

Memory::Sides Memory::check_copy(Place dst, Place src, uint64_t bytes) const {
  if (dst.device == BP_HOST_DEVICE && src.device == BP_HOST_DEVICE) {
    throw Error(BP_INVALID_ARGUMENT, "copy: one of the two sides is a device");
  }
  Sides out;
  if (dst.device != BP_HOST_DEVICE) out.to = range(dst, bytes, "copy: dst");
  if (src.device != BP_HOST_DEVICE) out.from = range(src, bytes, "copy: src");
  return out;
}

Event Memory::copy(Queue& queue, Place dst, Place src, uint64_t bytes) {
  const Sides sides = check_copy(dst, src, bytes);
  queue.device().check();
  if (bytes == 0) return {};
  return copy(queue, Side{dst.address, sides.to ? &*sides.to : nullptr}, Side{src.address, sides.from ? &*sides.from : nullptr}, bytes);
}

Memory::Found Memory::check_fill(const Device& device, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count) const {
  return range({dst, device.index()}, FillPattern(pattern, pattern_size, count, dst).bytes, "fill: dst");
}

Event Memory::fill(Queue& queue, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count) {
  const Found to = check_fill(queue.device(), dst, pattern, pattern_size, count);
  queue.device().check();
  return count == 0 ? Event() : fill(queue, to, pattern, pattern_size, count * pattern_size);
}

// ---- pinned memory

void* Pinned::alloc(uint64_t bytes) {
  const Api& api = device_.api();
  cl_int code = CL_SUCCESS;
  const uint64_t size = bytes ? bytes : 1;
  const cl_mem buffer = api.clCreateBuffer(device_.context().get(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size, nullptr, &code);
  if (code != CL_SUCCESS) throw Error(BP_OUT_OF_MEMORY, format("host_alloc: %llu bytes: ", wide(bytes)) + code_name(code));
  void* memory =
      api.clEnqueueMapBuffer(device_.default_queue().native(), buffer, 1, CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, nullptr, nullptr, &code);
  if (code != CL_SUCCESS) {
    api.clReleaseMemObject(buffer);
    throw Error(BP_OUT_OF_MEMORY, "host_alloc: clEnqueueMapBuffer: " + code_name(code));
  }
  try {
    table_.insert(reinterpret_cast<uint64_t>(memory), size, buffer);
  } catch (...) {
    release(buffer, memory);
    throw;
  }
  return memory;
}

void Pinned::free(void* memory) {
  const auto place = table_.remove(reinterpret_cast<uint64_t>(memory));
  if (!place) throw Error(BP_INVALID_ARGUMENT, "host_free: not a pointer of host_alloc");
  release(place->handle, memory);
}

void Pinned::release(cl_mem buffer, void* memory) {
  device_.api().clEnqueueUnmapMemObject(device_.default_queue().native(), buffer, memory, 0, nullptr, nullptr);
  device_.api().clReleaseMemObject(buffer);
}

Pinned::~Pinned() {
  table_.each([this](const auto& place) { release(place.handle, reinterpret_cast<void*>(place.base)); });
}

}  // namespace backplane::driver::opencl
