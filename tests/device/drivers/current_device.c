/* tests/device/drivers/current_device.c: a shim that knows each thread's current device by set_current alone, and refuses one device.
   Used through ctypes. */
#include <stdio.h>
#include <stdlib.h>

#include <backplane/driver.h>

BP_EXPORT int refused = -1;
static _Thread_local int32_t current = 0;

BP_EXPORT int32_t current_of_this_thread(void) { return current; }

typedef struct {
  bp_driver table; /* the inner driver's, two entries replaced */
  const bp_driver* inner;
} watcher;

static watcher* only = NULL;

static int32_t set_current(void* self, int32_t device) {
  (void)self;
  if (device == __atomic_load_n(&refused, __ATOMIC_SEQ_CST)) return BP_INTERNAL;
  current = device;
  return BP_OK;
}

static int32_t last_error(void* self, char* buf, uint64_t size) {
  (void)self;
  snprintf(buf, size, "the fan of that device stands still");
  return BP_OK;
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  only = malloc(sizeof(watcher));
  if (only == NULL) return BP_OUT_OF_MEMORY;
  only->inner = host->inner;
  only->table = *host->inner;
  only->table.set_current = set_current;
  only->table.last_error = last_error;
  *out = &only->table;
  return BP_OK;
}
