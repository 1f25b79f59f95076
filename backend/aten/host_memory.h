// aten/host_memory.h: lets an operator of the CPU allocate its results in device memory, so that they need no copy to become device
// tensors.
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

 private:
  friend class HostMemoryAllocator;
  c10::DataPtr allocate(size_t bytes);

  c10::DeviceIndex device_;
  c10::DeleterFnPtr deleter_;
  DeviceBackedHostMemory* outer_;
};

// The allocator that storages lent to the CPU grow by: it allocates as above within a scope, and as torch's CPU allocator outside of one.
c10::Allocator* host_memory_allocator();

// The same memory under another device's label.
c10::DataPtr relabel(c10::DataPtr data, c10::Device device);

}  // namespace backplane
