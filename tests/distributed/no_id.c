/* tests/distributed/no_id.c: a shim whose driver makes no ids. */
#include "collective_shim.h"

static int32_t make_id(void* self, int32_t device, void* out) {
  (void)self, (void)device, (void)out;
  return BP_INTERNAL;
}

static void change(bp_collective* entries) { entries->make_id = make_id; }
