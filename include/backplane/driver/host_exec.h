/* backplane/driver/host_exec.h: group "bp.host_exec" version 1: device work that is a host function, in stream order.
 *
 * For simulated and host-side devices: the SDK's example kernels run through it. The function runs on a thread of the driver's choosing
 * (or on the caller's, for inline streams), never with the GIL.
 */
#pragma once

#include "../driver.h"

#define BP_HOST_EXEC_ID "bp.host_exec"
#define BP_HOST_EXEC_VERSION 1u

typedef struct bp_host_exec {
  bp_ext head;

  /* Queues fn(arg) on the stream. fn is device work: it runs 0..n times (skipped after a fault, again in a replay), throws nothing, and
   * returns a bp_status; anything but BP_OK makes the device FAULT. destroy(arg) runs exactly once when fn can no longer be called, on
   * any thread, also if enqueue itself fails; it may be NULL. errors: sticky ones. */
  int32_t (*enqueue)(void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void* arg), void* arg, void (*destroy)(void* arg));

  /* The pointer through which fn accesses a device address. Valid inside fn only (on its thread), and for the whole allocation that
   * contains the address. errors: INVALID_ARGUMENT for an address that is not the device's. */
  int32_t (*map)(void* self, int32_t device, uint64_t address, void** out);
} bp_host_exec;

#define BP_HOST_EXEC_SLOTS(X) X(enqueue) X(map)
