// drivers/shims/fault/waits.h: what is intercepted of streams and events: they are refused, or wait in vain.
#pragma once

#include <memory>

#include "below.h"

namespace backplane::driver::fault {

class WaitFaults : public virtual Below {
 public:
  using Below::Below;

  void synchronize(int32_t device, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs()) found.wait_in_vain(timeout_ns);
    pass(&bp_driver::synchronize, device, timeout_ns);
    found.check();
  }

  void stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    state(device).check();
    if (strikes(settings_.stream, device)) throw Error(BP_INTERNAL, settings_.stream.text("stream_create: the device refused a queue"));
    pass(&bp_driver::stream_create, device, priority, flags, out);
  }
  void stream_destroy(int32_t device, bp_stream* stream) {
    state(device).forget(stream);
    release(device, below_.stream_destroy(below_.self, device, stream));
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(stream)) return BP_PENDING;
    const int32_t status = pass(&bp_driver::stream_query, device, stream);
    found.check();
    return status;
  }
  void stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(stream)) found.wait_in_vain(timeout_ns);
    pass(&bp_driver::stream_synchronize, device, stream, timeout_ns);
    found.check();
  }
  void stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    DeviceFault& found = state(device);
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "stream_callback: fn must not be NULL");
    if (found.hangs(stream)) {
      found.hold(stream, [fn, arg] { fn(arg, BP_FAULT); });
      return;
    }
    struct Call {
      DeviceFault* state;
      bp_callback fn;
      void* arg;
    };
    auto call = std::make_unique<Call>(Call{&found, fn, arg});
    const auto run = [](void* given, int32_t status) {
      const std::unique_ptr<Call> one(static_cast<Call*>(given));
      const int32_t sticky = one->state->sticky();
      one->fn(one->arg, sticky == BP_OK ? status : sticky);
    };
    checked_call(below_.stream_callback(below_.self, device, stream, run, call.get()));
    static_cast<void>(call.release());
  }
  /// Asked for each launch of a vendor's own, which passes the driver by: it counts as a piece of work, and fails or hangs like one.
  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) {
    queue(alive(device), device, stream, "a vendor's kernel");
    if (below_.stream_native) {
      pass(&bp_driver::stream_native, device, stream, out);
    } else {
      *out = reinterpret_cast<uint64_t>(stream);
    }
  }
  void stream_from_native(int32_t device, uint64_t native, bp_stream** out) { pass(&bp_driver::stream_from_native, device, native, out); }

  void event_create(int32_t device, uint32_t flags, bp_event** out) {
    state(device).check();
    if (strikes(settings_.event, device)) throw Error(BP_INTERNAL, settings_.event.text("event_create: the device refused an event"));
    pass(&bp_driver::event_create, device, flags, out);
  }
  void event_destroy(int32_t device, bp_event* event) {
    state(device).set_hangs(event, false);
    release(device, below_.event_destroy(below_.self, device, event));
  }
  void event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    DeviceFault& found = state(device);
    found.check();
    const bool hangs = found.hangs(stream);
    if (found.hangs()) found.set_hangs(event, hangs);
    if (!hangs) pass(&bp_driver::event_record, device, stream, event, flags);
  }
  int32_t event_query(int32_t device, bp_event* event) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(event)) return BP_PENDING;
    const int32_t status = pass(&bp_driver::event_query, device, event);
    found.check();
    return status;
  }
  void event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(event)) found.wait_in_vain(timeout_ns);
    pass(&bp_driver::event_synchronize, device, event, timeout_ns);
    found.check();
  }
  void stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    DeviceFault& found = state(device);
    found.check();
    for (const auto& owner : devices_) {  // the event may be another device's
      if (owner->hangs(event)) return found.hang(stream);
    }
    if (!found.hangs(stream)) pass(&bp_driver::stream_wait, device, stream, event);
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(start) || found.hangs(end)) return BP_PENDING;
    return pass(&bp_driver::event_elapsed, device, start, end, ns);
  }
};

}  // namespace backplane::driver::fault
