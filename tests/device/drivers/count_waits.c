/* tests/device/drivers/count_waits.c: a shim that counts how often the core blocks on the device. `waits` is read through ctypes.
   The core waits in slices, so that Ctrl-C is heard: a slice that ran out is not counted, the wait goes on. */
#include <stdlib.h>
#include <string.h>

#include <backplane/driver.h>

typedef struct {
  bp_driver table; /* the inner driver's, three entries replaced */
  const bp_driver* inner;
} counter;

BP_EXPORT int64_t waits = 0;

static counter* only = NULL; /* entries that go straight through get the inner driver's self */

static int32_t counted(int32_t status) {
  if (status != BP_TIMEOUT) __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED);
  return status;
}

static int32_t counted_copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
  return counted(only->inner->copy(self, device, stream, dst, dst_device, src, src_device, bytes, flags));
}

static int32_t counted_synchronize(void* self, int32_t device, uint64_t timeout_ns) {
  return counted(only->inner->synchronize(self, device, timeout_ns));
}

static int32_t counted_stream_synchronize(void* self, int32_t device, bp_stream* stream, uint64_t timeout_ns) {
  return counted(only->inner->stream_synchronize(self, device, stream, timeout_ns));
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  only = malloc(sizeof(counter));
  if (only == NULL) return BP_OUT_OF_MEMORY;
  only->inner = host->inner;
  only->table = *host->inner;
  only->table.copy = counted_copy;
  only->table.synchronize = counted_synchronize;
  only->table.stream_synchronize = counted_stream_synchronize;
  *out = &only->table;
  return BP_OK;
}
