/* backplane/driver/vmm.h: group "bp.vmm" version 1: device addresses that are reserved first and mapped to memory later, part by part.
 *
 * The core's allocator grows its segments in place with it (expandable_segments:True). Mapped memory is like alloc's in every respect:
 * copies, fills and kernels access it by its address, and one call may span adjacent mappings.
 */
#pragma once

#include "../driver.h"

#define BP_VMM_ID "bp.vmm"
#define BP_VMM_VERSION 1u

typedef struct bp_vmm {
  bp_ext head;

  /* *out = bytes: every address and size below is a multiple of it. A power of two, BP_MIN_ALIGNMENT or more. Creates no context. */
  int32_t (*granularity)(void* self, int32_t device, uint64_t* out);

  /* Reserves `bytes` of addresses, which may exceed the device's memory; *out is unique, as alloc's. Allocates no memory: accesses to
   * the range fail. errors: OUT_OF_MEMORY: no such range of addresses is left. */
  int32_t (*reserve)(void* self, int32_t device, uint64_t bytes, uint64_t* out);

  /* Releases a whole reservation. errors: INVALID_ARGUMENT: not a reservation, or some of it is mapped. */
  int32_t (*release)(void* self, int32_t device, uint64_t address, uint64_t bytes);

  /* Maps memory to [address, address + bytes), which is inside one reservation, none of it mapped. Blocks until work that is queued
   * later can use it. Contents are undefined. errors: OUT_OF_MEMORY: nothing was mapped, as alloc. INVALID_ARGUMENT. */
  int32_t (*map)(void* self, int32_t device, uint64_t address, uint64_t bytes);

  /* Unmaps the memory of one map: the same address and bytes. No work uses it. memory_info counts it as free when this returns; the
   * addresses can be mapped again. errors: INVALID_ARGUMENT: not a range of one map. After DEVICE_LOST: OK, as free. */
  int32_t (*unmap)(void* self, int32_t device, uint64_t address, uint64_t bytes);
} bp_vmm;

#define BP_VMM_SLOTS(X) X(granularity) X(reserve) X(release) X(map) X(unmap)
