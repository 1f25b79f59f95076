/* tests/device/drivers/count_in_child.c: a shim whose devices are counted in a child process, which fails as `mode` says. `mode` is set
   through ctypes; the child inherits it. */
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum { WELL, SLOW, HANGS, IS_KILLED, ENDS, REFUSES };
BP_EXPORT int mode = WELL;

static pid_t loader;

static int32_t device_count(void* self, int32_t* out) {
  const struct timespec nap = {0, 300 * 1000 * 1000};
  if (getpid() == loader) return BP_INTERNAL; /* counting here would have made a context */
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
  return inner->device_count(self, out);
}

static int32_t last_error(void* self, char* buf, uint64_t size) {
  snprintf(buf, size, "the bus does not answer");
  return BP_OK;
}

static void change(const bp_host* host) {
  loader = getpid();
  table.flags |= BP_DRIVER_COUNT_FORKS;
  table.device_count = device_count;
  table.last_error = last_error;
}
