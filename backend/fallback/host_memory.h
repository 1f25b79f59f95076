// fallback/host_memory.h: lets an operator of the CPU allocate its results in device memory, so that they become device tensors without a
// copy.
//
// Note [torch's CPU allocator]: the import replaces torch's CPU allocator by one that wraps it, for the whole process. This is the only
// place to intercept results: operators of the CPU call the allocator directly, below the dispatcher. Without it every result that is not
// an out= argument costs one more pass over its bytes. It is safe because
//   - it is installed before other threads exist, since torch's pointer to its allocator has no lock;
//   - it acts only on the thread that has a scope open, while the scope is open; it forwards every other request to the wrapped allocator;
//   - memory is freed by its kind, not by the freeing thread: any thread, any time, in or out of a scope, after a fork, at exit; this takes
//   no lock;
//   - its raw_deleter() is the deleter of every pointer that it returns, as c10 requires;
//   - it is never uninstalled: if another CPU allocator is set later, results are copied, and nothing else changes;
//   - it is never destroyed, and when device memory is exhausted within a scope it returns host memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace backplane {

// While it lives, CPU memory that this thread allocates through torch's allocator is device memory, with a CPU device. Only for drivers
// with zero_copy. Scopes nest.
class DeviceBackedHostMemory {
 public:
  explicit DeviceBackedHostMemory(c10::DeviceIndex device);
  ~DeviceBackedHostMemory();
  DeviceBackedHostMemory(const DeviceBackedHostMemory&) = delete;
  DeviceBackedHostMemory& operator=(const DeviceBackedHostMemory&) = delete;

  // Whether such a scope allocated it on this device.
  bool owns(const c10::DataPtr& data) const;

  // Converts memory that it owns to device memory.
  c10::DataPtr to_device_memory(c10::DataPtr data) const;

 private:
  friend class HostMemoryAllocator;
  c10::DataPtr allocate(size_t bytes);

  c10::DeviceIndex device_;
  DeviceBackedHostMemory* outer_;
};

// The allocator by which storages of arguments grow on the CPU: as above within a scope, torch's CPU allocator outside.
c10::Allocator* host_memory_allocator();

}  // namespace backplane
