// fallback/host_memory.h: lets an operator of the CPU allocate its results in device memory, so that they need no copy to become device
// tensors.
//
// Note [torch's CPU allocator]: the import puts an allocator of ours before torch's own, for the whole process. It is the one place where
// results can be caught: operators of the CPU allocate by it directly, below the dispatcher. Without it every result that is not an out=
// argument costs one more pass over its bytes. It is safe because
//   - it is there before other threads are, since torch's pointer to its allocator has no lock;
//   - it acts on the thread that has a scope open, and for the scope's time; every other request goes to the allocator before it;
//   - whatever it gave out is freed by what it is, not by who frees it: any thread, any time, in or out of a scope, after a fork, at exit;
//   that takes no lock;
//   - its raw_deleter() is the deleter of every pointer that it hands out, as c10 asks;
//   - it is not put back: when somebody sets another CPU allocator later, results are copied, and nothing else changes;
//   - it is never destroyed, and when device memory runs out within a scope it gives host memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace backplane {

// While it lives, CPU memory that this thread asks of torch's allocator comes from the device's, under a CPU label. Only for drivers with
// zero_copy. Scopes nest.
class DeviceBackedHostMemory {
 public:
  explicit DeviceBackedHostMemory(c10::DeviceIndex device);
  ~DeviceBackedHostMemory();
  DeviceBackedHostMemory(const DeviceBackedHostMemory&) = delete;
  DeviceBackedHostMemory& operator=(const DeviceBackedHostMemory&) = delete;

  // Whether such a scope allocated it on this device.
  bool owns(const c10::DataPtr& data) const;

  // What it owns, as the device's.
  c10::DataPtr give_up(c10::DataPtr data) const;

 private:
  friend class HostMemoryAllocator;
  c10::DataPtr allocate(size_t bytes);

  c10::DeviceIndex device_;
  DeviceBackedHostMemory* outer_;
};

// The allocator that storages lent to the CPU grow by: it allocates as above within a scope, and as torch's CPU allocator outside of one.
c10::Allocator* host_memory_allocator();

}  // namespace backplane
