/* tests/device/drivers/stuck_calls.c: a shim in which calls of free or event_query do not come back while `stuck` says so. Used through
   ctypes; `inside` is how many calls are stuck. */
#include <stdlib.h>
#include <time.h>

#include <backplane/driver.h>

enum { NOTHING, FREE, EVENT_QUERY };
BP_EXPORT int stuck = NOTHING;
BP_EXPORT int inside = 0;

typedef struct {
  bp_driver table; /* the inner driver's, two entries replaced */
  const bp_driver* inner;
} holder;

static holder* only = NULL;

static void hold(int call) {
  const struct timespec nap = {0, 1000 * 1000};
  if (__atomic_load_n(&stuck, __ATOMIC_SEQ_CST) != call) return;
  __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&stuck, __ATOMIC_SEQ_CST) == call) nanosleep(&nap, NULL);
  __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
}

static int32_t free_(void* self, int32_t device, uint64_t address) {
  hold(FREE);
  return only->inner->free(self, device, address);
}

static int32_t event_query(void* self, int32_t device, bp_event* event) {
  hold(EVENT_QUERY);
  return only->inner->event_query(self, device, event);
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  only = malloc(sizeof(holder));
  if (only == NULL) return BP_OUT_OF_MEMORY;
  only->inner = host->inner;
  only->table = *host->inner;
  only->table.free = free_;
  only->table.event_query = event_query;
  *out = &only->table;
  return BP_OK;
}
