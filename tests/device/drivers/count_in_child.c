/* tests/device/drivers/count_in_child.c: a shim whose devices are counted in a child process, which goes wrong in the way that `mode` says.
   `mode` is set through ctypes; the child inherits it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <backplane/driver.h>

enum { WELL, SLOW, HANGS, IS_KILLED, ENDS, REFUSES };
BP_EXPORT int mode = WELL;

typedef struct {
  bp_driver table; /* the inner driver's, two entries replaced */
  const bp_driver* inner;
  pid_t loader;
} counter;

static counter* only = NULL;

static int32_t device_count(void* self, int32_t* out) {
  const struct timespec nap = {0, 300 * 1000 * 1000};
  if (getpid() == only->loader) return BP_INTERNAL; /* counting here would have made a context */
  switch (mode) {
    case SLOW:
      nanosleep(&nap, NULL);
      break;
    case HANGS:
      for (;;) pause();
    case IS_KILLED:
      raise(SIGKILL);
      break;
    case ENDS:
      _exit(3);
    case REFUSES:
      return BP_INTERNAL;
    default:
      break;
  }
  return only->inner->device_count(self, out);
}

static int32_t last_error(void* self, char* buf, uint64_t size) {
  (void)self;
  snprintf(buf, size, "the bus does not answer");
  return BP_OK;
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  only = malloc(sizeof(counter));
  if (only == NULL) return BP_OUT_OF_MEMORY;
  only->inner = host->inner;
  only->loader = getpid();
  only->table = *host->inner;
  only->table.flags |= BP_DRIVER_COUNT_FORKS;
  only->table.device_count = device_count;
  only->table.last_error = last_error;
  *out = &only->table;
  return BP_OK;
}
