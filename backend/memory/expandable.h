// memory/expandable.h: expandable segments: reserved addresses for all of a device's memory, and memory that is mapped there.
//
// Note [Expandable segments]: each stream has one such segment per pool and size class, created with the driver's bp.vmm. Addresses without
// memory are a block in state unmapped; a request for which there is no free block maps chunks next to free memory, so that freed memory
// merges with its neighbours, however the sizes of a program change. Unused chunks are unmapped again. A range that a thread maps or unmaps
// is a block in state claimed, which no other thread touches: the driver is called without the lock.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>

namespace backplane::memory {

// The driver's bp.vmm with the error table: the first three throw for anything but out of memory, the others warn; unmap returns whether it
// succeeded.
struct AddressSpace {
  static uint64_t granularity(c10::DeviceIndex device);
  static uint64_t reserve(c10::DeviceIndex device, uint64_t bytes);  // 0: no addresses are left
  static bool map(c10::DeviceIndex device, uint64_t address, uint64_t bytes);
  static bool unmap(c10::DeviceIndex device, uint64_t address, uint64_t bytes) noexcept;
  static void release(c10::DeviceIndex device, uint64_t address, uint64_t bytes) noexcept;
};

}  // namespace backplane::memory
