// drivers/shims/emulate/streams.h: streams and events: the shim's own, or those of the driver below, waited for outside the lock.
#pragma once

#include "below.h"

namespace backplane::driver::emulate {

class StreamEntries : public virtual Below {
 public:
  using Below::Below;

  void synchronize(int32_t device, uint64_t timeout_ns) {
    const Deadline deadline(timeout_ns);
    if (own_streams_) Engine::synchronize(device, timeout_ns);
    inner_.wait(&bp_driver::synchronize, deadline.left_ns(), device);
  }

  int32_t stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    if (own_streams_) return Engine::stream_create(device, priority, flags, out);
    return inner_(&bp_driver::stream_create, device, priority, flags, out);
  }
  int32_t stream_destroy(int32_t device, bp_stream* stream) {
    if (own_streams_) return Engine::stream_destroy(device, stream);
    drain_outside_lock(device, stream);
    return inner_(&bp_driver::stream_destroy, device, stream);
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    if (own_streams_) return Engine::stream_query(device, stream);
    return inner_(&bp_driver::stream_query, device, stream);
  }
  void stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    if (own_streams_) {
      Engine::stream_synchronize(device, stream, timeout_ns);
    } else {
      inner_.wait(&bp_driver::stream_synchronize, timeout_ns, device, stream);
    }
  }
  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) { inner_(&bp_driver::stream_native, device, stream, out); }
  int32_t stream_from_native(int32_t device, uint64_t native, bp_stream** out) {
    if (own_streams_) return Engine::stream_from_native(device, native, out);
    return inner_(&bp_driver::stream_from_native, device, native, out);
  }
  int32_t stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    if (own_streams_) return Engine::stream_callback(device, stream, fn, arg);
    return inner_(&bp_driver::stream_callback, device, stream, fn, arg);
  }

  int32_t event_create(int32_t device, uint32_t flags, bp_event** out) {
    if (own_streams_) return Engine::event_create(device, flags, out);
    return inner_(&bp_driver::event_create, device, flags, out);
  }
  int32_t event_destroy(int32_t device, bp_event* event) {
    if (own_streams_) return Engine::event_destroy(device, event);
    return inner_(&bp_driver::event_destroy, device, event);
  }
  int32_t event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    if (own_streams_) return Engine::event_record(device, stream, event, flags);
    return inner_(&bp_driver::event_record, device, stream, event, flags);
  }
  int32_t event_query(int32_t device, bp_event* event) {
    if (own_streams_) return Engine::event_query(device, event);
    return inner_(&bp_driver::event_query, device, event);
  }
  void event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    if (own_streams_) {
      Engine::event_synchronize(device, event, timeout_ns);
    } else {
      inner_.wait(&bp_driver::event_synchronize, timeout_ns, device, event);
    }
  }
  int32_t stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    if (own_streams_) return Engine::stream_wait(device, stream, event);
    return inner_(&bp_driver::stream_wait, device, stream, event);
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    if (own_streams_) return Engine::event_elapsed(device, start, end, ns);
    return inner_(&bp_driver::event_elapsed, device, start, end, ns);
  }
};

}  // namespace backplane::driver::emulate
