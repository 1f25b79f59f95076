// memory/expandable.h: segments that grow in place: addresses set aside for all of a device's memory, and memory mapped behind them.
//
// Note [Expandable segments]: each stream has one such segment a pool and size class, made by the driver's bp.vmm. What has no memory is a
// block of its own, in state unmapped; a request that nothing free serves maps chunks next to what is free there, so that freed memory
// joins whatever was beside it, however the sizes of a program change. Chunks without a used byte are unmapped again. A range that a thread
// maps or unmaps is a block in state claimed, which nobody else touches: the driver is called without the lock.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>

namespace backplane::memory {

// The driver's bp.vmm with the error table: the first three throw for anything but out of memory, the others warn; unmap tells whether it
// was done.
struct AddressSpace {
  static uint64_t granularity(c10::DeviceIndex device);
  static uint64_t reserve(c10::DeviceIndex device, uint64_t bytes);  // 0: no addresses are left
  static bool map(c10::DeviceIndex device, uint64_t address, uint64_t bytes);
  static bool unmap(c10::DeviceIndex device, uint64_t address, uint64_t bytes) noexcept;
  static void release(c10::DeviceIndex device, uint64_t address, uint64_t bytes) noexcept;
};

}  // namespace backplane::memory
