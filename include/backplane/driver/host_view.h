/* backplane/driver/host_view.h: group "bp.host_view" version 1: the host reads and writes device memory in place.
 *
 * The flags describe a view. With all three, operators of the CPU fallback run zero-copy on the device's own memory, and numpy shares it
 * (DLPack). With SAME_ADDRESS and COHERENT, emulate runs host functions on it (bp.host_exec) for a driver without streams of its own. With
 * COHERENT, kernels and Python can view a tensor from the host (host_view, DLPack with copy=False). With fewer flags no view is requested,
 * and the group need not be offered.
 */
#pragma once

#include "../driver.h"

#define BP_HOST_VIEW_ID "bp.host_view"
#define BP_HOST_VIEW_VERSION 1u

/* head.flags */
#define BP_HOST_VIEW_SAME_ADDRESS (1u << 0) /* the host pointer equals the device address */
#define BP_HOST_VIEW_COHERENT (1u << 1)     /* no map/unmap needed for visibility once the stream is synchronized */
#define BP_HOST_VIEW_CACHED_READ (1u << 2)  /* host reads run at the speed of ordinary memory */

/* access of map */
enum { BP_ACCESS_READ = 1, BP_ACCESS_WRITE = 2, BP_ACCESS_READ_WRITE = 3 };

typedef struct bp_host_view {
  bp_ext head;

  /* Makes [address, address + bytes) readable or writable by the host at *out. Acquires what the device wrote; the caller has
   * synchronized the streams that use the memory. The range is inside one allocation. errors: INVALID_ARGUMENT, UNSUPPORTED. */
  int32_t (*map)(void* self, int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out);

  /* Ends a view; releases host writes to work that is queued later. */
  int32_t (*unmap)(void* self, int32_t device, uint64_t address, void* ptr);
} bp_host_view;

#define BP_HOST_VIEW_SLOTS(X) X(map) X(unmap)
