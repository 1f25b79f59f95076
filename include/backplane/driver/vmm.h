/* backplane/driver/vmm.h: group "bp.vmm" version 1: device addresses that are set aside first and get their memory later, part by part.
 *
 * The core's allocator grows its segments in place with it (expandable_segments:True). Memory that was mapped is as alloc's in every
 * respect: copies, fills and kernels reach it by its address, and one call may cross from one mapping into the one that follows it.
 */
#ifndef BACKPLANE_DRIVER_VMM_H
#define BACKPLANE_DRIVER_VMM_H

#include "../driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BP_VMM_ID "bp.vmm"
#define BP_VMM_VERSION 1u

typedef struct bp_vmm {
  bp_ext head;

  /* *out = bytes: every address and size below is a multiple of it. A power of two, BP_MIN_ALIGNMENT or more. Creates no context. */
  int32_t (*granularity)(void* self, int32_t device, uint64_t* out);

  /* Sets `bytes` of addresses aside, which may be more than the device has memory; *out is unique as an alloc's. Takes no memory and is
   * none: whoever touches it is refused. errors: OUT_OF_MEMORY: no such range of addresses is left. */
  int32_t (*reserve)(void* self, int32_t device, uint64_t bytes, uint64_t* out);

  /* Gives the whole of a reservation back. errors: INVALID_ARGUMENT: no reservation, or some of it is mapped. */
  int32_t (*release)(void* self, int32_t device, uint64_t address, uint64_t bytes);

  /* Puts memory behind [address, address + bytes), which lies in one reservation, none of it mapped. Blocks until work that is queued later
   * can use it. Contents are undefined. errors: OUT_OF_MEMORY: nothing was mapped, as alloc. INVALID_ARGUMENT. */
  int32_t (*map)(void* self, int32_t device, uint64_t address, uint64_t bytes);

  /* Takes the memory of one map away: the same address and bytes. No work uses it. memory_info counts it as free when this returns; the
   * addresses can be mapped again. errors: INVALID_ARGUMENT: not a range of one map. After DEVICE_LOST: OK, as free. */
  int32_t (*unmap)(void* self, int32_t device, uint64_t address, uint64_t bytes);
} bp_vmm;

#define BP_VMM_SLOTS(X) X(granularity) X(reserve) X(release) X(map) X(unmap)

#ifdef __cplusplus
}
#endif
#endif
