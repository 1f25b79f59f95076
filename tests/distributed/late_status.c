/* tests/distributed/late_status.c: a shim that reports a communicator's status late: it may be outdated by then. */
#include "collective_shim.h"

#include <time.h>

static int32_t status(void* self, bp_comm* comm, int32_t* out, char* text, uint64_t size) {
  const int32_t found = below->status(self, comm, out, text, size);
  const struct timespec late = {0, 300000000};
  nanosleep(&late, NULL);
  return found;
}

static void change(bp_collective* entries) { entries->status = status; }
