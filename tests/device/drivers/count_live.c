/* tests/device/drivers/count_live.c: a shim that counts live objects of the driver. `live` is read through ctypes:
   device memory, pinned memory, streams, events. */
#include "shim.h"

enum { MEMORY, PINNED, STREAMS, EVENTS, KINDS };

BP_EXPORT int64_t live[KINDS] = {0};

static int32_t counted(int kind, int64_t step, int32_t status) {
  if (status == BP_OK) __atomic_add_fetch(&live[kind], step, __ATOMIC_RELAXED);
  return status;
}

static int32_t counted_alloc(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
  return counted(MEMORY, 1, inner->alloc(self, device, bytes, flags, out));
}

static int32_t counted_free(void* self, int32_t device, uint64_t address) {
  return counted(MEMORY, address == 0 ? 0 : -1, inner->free(self, device, address));
}

static int32_t counted_host_alloc(void* self, uint64_t bytes, uint32_t flags, void** out) {
  return counted(PINNED, 1, inner->host_alloc(self, bytes, flags, out));
}

static int32_t counted_host_free(void* self, void* ptr) { return counted(PINNED, ptr == NULL ? 0 : -1, inner->host_free(self, ptr)); }

static int32_t counted_stream_create(void* self, int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
  return counted(STREAMS, 1, inner->stream_create(self, device, priority, flags, out));
}

static int32_t counted_stream_destroy(void* self, int32_t device, bp_stream* stream) {
  return counted(STREAMS, -1, inner->stream_destroy(self, device, stream));
}

static int32_t counted_event_create(void* self, int32_t device, uint32_t flags, bp_event** out) {
  return counted(EVENTS, 1, inner->event_create(self, device, flags, out));
}

static int32_t counted_event_destroy(void* self, int32_t device, bp_event* event) {
  return counted(EVENTS, -1, inner->event_destroy(self, device, event));
}

static void change(const bp_host* host) {
  table.alloc = counted_alloc;
  table.free = counted_free;
  table.host_alloc = counted_host_alloc;
  table.host_free = counted_host_free;
  table.stream_create = counted_stream_create;
  table.stream_destroy = counted_stream_destroy;
  table.event_create = counted_event_create;
  table.event_destroy = counted_event_destroy;
}
