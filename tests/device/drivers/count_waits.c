/* tests/device/drivers/count_waits.c: a shim that counts how often the core waits for the device, copies, queries and records; read
   through ctypes. The core waits in slices, so that Ctrl-C ends it: a slice that timed out is not counted. */
#include "shim.h"

BP_EXPORT int64_t waits = 0;
BP_EXPORT int64_t copies = 0;
BP_EXPORT int64_t queries = 0; /* of streams and events */
BP_EXPORT int64_t records = 0;

static int32_t counted(int32_t status) {
  if (status != BP_TIMEOUT) __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED);
  return status;
}

static int32_t counted_copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
  __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
  return counted(inner->copy(self, device, stream, dst, dst_device, src, src_device, bytes, flags));
}

static int32_t counted_copy_async(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                                  int32_t src_device, uint64_t bytes, uint32_t flags) {
  __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
  return inner->copy_async(self, device, stream, dst, dst_device, src, src_device, bytes, flags);
}

static int32_t counted_stream_query(void* self, int32_t device, bp_stream* stream) {
  __atomic_add_fetch(&queries, 1, __ATOMIC_RELAXED);
  return inner->stream_query(self, device, stream);
}

static int32_t counted_event_query(void* self, int32_t device, bp_event* event) {
  __atomic_add_fetch(&queries, 1, __ATOMIC_RELAXED);
  return inner->event_query(self, device, event);
}

static int32_t counted_event_record(void* self, int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
  __atomic_add_fetch(&records, 1, __ATOMIC_RELAXED);
  return inner->event_record(self, device, stream, event, flags);
}

static int32_t counted_synchronize(void* self, int32_t device, uint64_t timeout_ns) {
  return counted(inner->synchronize(self, device, timeout_ns));
}

static int32_t counted_stream_synchronize(void* self, int32_t device, bp_stream* stream, uint64_t timeout_ns) {
  return counted(inner->stream_synchronize(self, device, stream, timeout_ns));
}

static void change(const bp_host* host) {
  table.copy = counted_copy;
  table.copy_async = counted_copy_async;
  table.stream_query = counted_stream_query;
  table.event_query = counted_event_query;
  table.event_record = counted_event_record;
  table.synchronize = counted_synchronize;
  table.stream_synchronize = counted_stream_synchronize;
}
