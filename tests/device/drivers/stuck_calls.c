/* tests/device/drivers/stuck_calls.c: a shim in which calls of free or event_query do not return while `stuck` names them. Used through
   ctypes; `inside` is the number of calls that are stuck. */
#include <time.h>

#include "shim.h"

enum { NOTHING, FREE, EVENT_QUERY };
BP_EXPORT int stuck = NOTHING;
BP_EXPORT int inside = 0;

static void hold(int call) {
  const struct timespec nap = {0, 1000 * 1000};
  if (__atomic_load_n(&stuck, __ATOMIC_SEQ_CST) != call) return;
  __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&stuck, __ATOMIC_SEQ_CST) == call) nanosleep(&nap, NULL);
  __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
}

static int32_t free_(void* self, int32_t device, uint64_t address) {
  hold(FREE);
  return inner->free(self, device, address);
}

static int32_t event_query(void* self, int32_t device, bp_event* event) {
  hold(EVENT_QUERY);
  return inner->event_query(self, device, event);
}

static void change(const bp_host* host) {
  table.free = free_;
  table.event_query = event_query;
}
