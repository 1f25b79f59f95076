// memory/pluggable.h: a user's C functions that replace the driver's alloc and free: for a pool, or for the whole device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <sys/types.h>

#include <cstddef>

namespace backplane::memory {

// The functions have the signatures of CUDAPluggableAllocator's. They get the device index that torch uses, and the vendor's stream object;
// sizes are multiples of 512 bytes. They are called without a lock, by any thread, and may not throw.
class Pluggable {
 public:
  using Alloc = void* (*)(ssize_t size, int device, void* stream);
  using Free = void (*)(void* ptr, ssize_t size, int device, void* stream);

  // Equal functions give the same object, which lives until the end of the process. ValueError for a null pointer.
  static const Pluggable* of(void* alloc, void* free);

  // NULL: out of memory. Throws for an address that is not a multiple of BP_MIN_ALIGNMENT, which copies require.
  void* alloc(c10::DeviceIndex device, size_t bytes, c10::StreamId stream) const;
  void free(c10::DeviceIndex device, void* ptr, size_t bytes, c10::StreamId stream) const noexcept;

 private:
  Pluggable(Alloc alloc, Free free) : alloc_(alloc), free_(free) {}

  Alloc alloc_;
  Free free_;
};

}  // namespace backplane::memory
