/* tests/distributed/bare.c: a shim whose driver has none of the optional collectives. */
#include "collective_shim.h"

static int32_t even(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes) {
  (void)self, (void)comm, (void)stream, (void)out, (void)in, (void)bytes;
  return BP_UNSUPPORTED;
}
static int32_t by_sizes(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, const uint64_t* out_bytes, const uint64_t* out_at,
                        uint64_t in, const uint64_t* in_bytes, const uint64_t* in_at) {
  (void)self, (void)comm, (void)stream, (void)out, (void)out_bytes, (void)out_at, (void)in, (void)in_bytes, (void)in_at;
  return BP_UNSUPPORTED;
}
static int32_t rooted(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root) {
  (void)self, (void)comm, (void)stream, (void)out, (void)in, (void)bytes, (void)root;
  return BP_UNSUPPORTED;
}
static int32_t barrier(void* self, bp_comm* comm, bp_stream* stream) {
  (void)self, (void)comm, (void)stream;
  return BP_UNSUPPORTED;
}

static void change(bp_collective* entries) {
  entries->head.flags &= ~(BP_COLLECTIVE_ALL_TO_ALL | BP_COLLECTIVE_ALL_TO_ALL_V | BP_COLLECTIVE_GATHER | BP_COLLECTIVE_BARRIER);
  entries->all_to_all = even;
  entries->all_to_all_v = by_sizes;
  entries->gather = entries->scatter = rooted;
  entries->barrier = barrier;
}
