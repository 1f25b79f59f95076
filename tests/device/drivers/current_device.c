/* tests/device/drivers/current_device.c: a shim that keeps each thread's current device, which set_current sets, and refuses one device.
   Used through ctypes. */
#include <stdio.h>

#include "shim.h"

BP_EXPORT int refused = -1;
static _Thread_local int32_t current = 0;

BP_EXPORT int32_t current_of_this_thread(void) { return current; }

static int32_t set_current(void* self, int32_t device) {
  if (device == __atomic_load_n(&refused, __ATOMIC_SEQ_CST)) return BP_INTERNAL;
  current = device;
  return BP_OK;
}

static int32_t last_error(void* self, char* buf, uint64_t size) {
  snprintf(buf, size, "the fan of that device stands still");
  return BP_OK;
}

static void change(const bp_host* host) {
  table.set_current = set_current;
  table.last_error = last_error;
}
