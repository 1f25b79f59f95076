/* tests/device/drivers/count_waits.c: a shim that counts how often the core blocks on the device, copies, asks and records; ctypes reads
   it. The core waits in slices, so that Ctrl-C is heard: a slice that ran out is not counted, the wait goes on. */
#include <stdlib.h>
#include <string.h>

#include <backplane/driver.h>

typedef struct {
  bp_driver table; /* the inner driver's, some entries replaced */
  const bp_driver* inner;
} counter;

BP_EXPORT int64_t waits = 0;
BP_EXPORT int64_t copies = 0;
BP_EXPORT int64_t queries = 0; /* of streams and events */
BP_EXPORT int64_t records = 0;

static counter* only = NULL; /* entries that go straight through get the inner driver's self */

static int32_t counted(int32_t status) {
  if (status != BP_TIMEOUT) __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED);
  return status;
}

static int32_t counted_copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
  __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
  return counted(only->inner->copy(self, device, stream, dst, dst_device, src, src_device, bytes, flags));
}

static int32_t counted_copy_async(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                                  int32_t src_device, uint64_t bytes, uint32_t flags) {
  __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
  return only->inner->copy_async(self, device, stream, dst, dst_device, src, src_device, bytes, flags);
}

static int32_t counted_stream_query(void* self, int32_t device, bp_stream* stream) {
  __atomic_add_fetch(&queries, 1, __ATOMIC_RELAXED);
  return only->inner->stream_query(self, device, stream);
}

static int32_t counted_event_query(void* self, int32_t device, bp_event* event) {
  __atomic_add_fetch(&queries, 1, __ATOMIC_RELAXED);
  return only->inner->event_query(self, device, event);
}

static int32_t counted_event_record(void* self, int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
  __atomic_add_fetch(&records, 1, __ATOMIC_RELAXED);
  return only->inner->event_record(self, device, stream, event, flags);
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
  only->table.copy_async = counted_copy_async;
  only->table.stream_query = counted_stream_query;
  only->table.event_query = counted_event_query;
  only->table.event_record = counted_event_record;
  only->table.synchronize = counted_synchronize;
  only->table.stream_synchronize = counted_stream_synchronize;
  *out = &only->table;
  return BP_OK;
}
