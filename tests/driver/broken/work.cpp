// tests/driver/broken/work.cpp: defects of the families stream, event, callback, wait and thread.
#include "shim.h"

namespace broken {
namespace {

void run_twice(void* arg, int32_t status) {
  auto* callback = static_cast<Callback*>(arg);
  callback->fn(callback->arg, status);
  callback->fn(callback->arg, status);
  delete callback;
}

void copy_held(Shim& s, const std::vector<uint64_t>& h) {
  INNER(s, copy_async, static_cast<int32_t>(h[0]), reinterpret_cast<bp_stream*>(h[1]), h[2], static_cast<int32_t>(h[3]), h[4],
        static_cast<int32_t>(h[5]), h[6], static_cast<uint32_t>(h[7]));
}

// Two callers at once: the second one is turned away, as by a structure that another thread is changing.
template <class Call>
int32_t alone(Shim& s, Call call) {
  if (s.inside.exchange(true)) return BP_INTERNAL;
  std::this_thread::sleep_for(std::chrono::microseconds(300));
  const int32_t status = call();
  s.inside = false;
  return status;
}

// Of the calling thread. The system gives a thread's id to a later one, so it would not do.
int thread_number() {
  static std::atomic<int> threads{0};
  thread_local const int number = ++threads;
  return number;
}

bool recorded(Shim& s, bp_event* event) {
  std::lock_guard lock(s.mutex);
  return s.seen.contains(event);
}

}  // namespace

void add_work_defects(Defects& d) {
  // Of two copies the second one goes first.
  d["stream.order"] = instead<&bp_driver::copy_async, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device,
                                                         uint64_t src, int32_t src_device, uint64_t bytes, uint32_t flags) {
    std::vector<uint64_t> now{static_cast<uint64_t>(device),
                              reinterpret_cast<uint64_t>(stream),
                              dst,
                              static_cast<uint64_t>(dst_device),
                              src,
                              static_cast<uint64_t>(src_device),
                              bytes,
                              flags};
    if (s.held.empty()) {
      s.held.push_back(now);
      return ok;
    }
    copy_held(s, now);
    copy_held(s, s.held.front());
    s.held.clear();
    return ok;
  }>;
  d["stream.create"] = instead<&bp_driver::stream_create, [](Shim& s, int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    if (++s.calls % 2) return INNER(s, stream_create, device, priority, flags, &s.side), *out = s.side, ok;
    *out = s.side;
    return ok;
  }>;
  d["stream.priorities"] =
      instead<&bp_driver::stream_create, [](Shim& s, int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
        if (priority) return int32_t{BP_INVALID_ARGUMENT};
        return INNER(s, stream_create, device, priority, flags, out);
      }>;
  d["stream.limit"] = after<&bp_driver::device_properties, [](Shim& s, int32_t status, int32_t device, bp_device_properties* out) {
    if (status == BP_OK) out->stream_limit = 5;  // the driver gives more
    return status;
  }>;
  d["stream.query"] = [](Shim& s) { s.table.stream_query = [](void*, int32_t, bp_stream*) { return ok; }; };
  d["stream.wait"] = [](Shim& s) { s.table.stream_wait = [](void*, int32_t, bp_stream*, bp_event*) { return ok; }; };
  d["stream.destroy_pending"] = [](Shim& s) { s.table.stream_destroy = [](void*, int32_t, bp_stream*) { return ok; }; };
  d["stream.device_synchronize"] = instead<&bp_driver::synchronize, [](Shim& s, int32_t device, uint64_t timeout) {
    return INNER(s, stream_synchronize, device, nullptr, timeout);
  }>;
  d["stream.native"] = instead<&bp_driver::stream_native, [](Shim& s, int32_t, bp_stream*, uint64_t* out) {
    *out = static_cast<uint64_t>(++s.calls);
    return ok;
  }>;
  // A new handle for each call.
  d["stream.from_native"] = instead<&bp_driver::stream_from_native, [](Shim& s, int32_t, uint64_t, bp_stream** out) {
    *out = reinterpret_cast<bp_stream*>(static_cast<uintptr_t>(++s.calls * 2));
    return ok;
  }>;

  d["event.unrecorded"] = [](Shim& s) {
    s.table.event_record = [](void* self, int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
      {
        std::lock_guard lock(of(self).mutex);
        of(self).seen.insert(event);
      }
      return INNER(of(self), event_record, device, stream, event, flags);
    };
    s.table.event_query = [](void* self, int32_t device, bp_event* event) {
      return recorded(of(self), event) ? INNER(of(self), event_query, device, event) : int32_t{BP_PENDING};
    };
  };
  d["event.recorded"] = [](Shim& s) { s.table.event_query = [](void*, int32_t, bp_event*) { return ok; }; };
  d["event.rerecorded"] =
      instead<&bp_driver::event_record, [](Shim& s, int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
        std::lock_guard lock(s.mutex);
        return s.seen.insert(event).second ? INNER(s, event_record, device, stream, event, flags) : ok;
      }>;
  d["event.wait_keeps"] = [](Shim& s) {
    // A wait looks at the event only when the next work comes.
    s.table.stream_wait = [](void* self, int32_t, bp_stream* stream, bp_event* event) {
      of(self).waits[stream] = event;
      return ok;
    };
    s.table.event_record = [](void* self, int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
      Shim& shim = of(self);
      if (const auto found = shim.waits.find(stream); found != shim.waits.end()) {
        INNER(shim, stream_wait, device, stream, found->second);
        shim.waits.erase(found);
      }
      return INNER(shim, event_record, device, stream, event, flags);
    };
  };
  d["event.destroyed"] = instead<&bp_driver::event_destroy, [](Shim& s, int32_t device, bp_event* event) {
    if (INNER(s, event_query, device, event) == BP_PENDING) return int32_t{BP_INVALID_ARGUMENT};
    return INNER(s, event_destroy, device, event);
  }>;
  d["event.elapsed"] =
      after<&bp_driver::event_elapsed, [](Shim& s, int32_t status, int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
        if (status == BP_OK) *ns /= 1000;  // microseconds
        return status;
      }>;
  d["event.elapsed_errors"] =
      after<&bp_driver::event_elapsed, [](Shim& s, int32_t status, int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
        return status == BP_INVALID_ARGUMENT ? (*ns = 0, ok) : status;
      }>;
  d["event.elapsed_pending"] = after<&bp_driver::event_elapsed, [](Shim& s, int32_t status, int32_t device, bp_event* start, bp_event* end,
                                                                   int64_t* ns) { return status == BP_PENDING ? (*ns = 0, ok) : status; }>;
  d["event.across_devices"] = [](Shim& s) {
    s.table.event_create = [](void* self, int32_t device, uint32_t flags, bp_event** out) {
      const int32_t status = INNER(of(self), event_create, device, flags, out);
      std::lock_guard lock(of(self).mutex);
      of(self).devices[*out] = device;
      return status;
    };
    s.table.stream_wait = [](void* self, int32_t device, bp_stream* stream, bp_event* event) {
      {
        std::lock_guard lock(of(self).mutex);
        if (of(self).devices[event] != device) return ok;
      }
      return INNER(of(self), stream_wait, device, stream, event);
    };
  };

  d["callback.once"] = instead<&bp_driver::stream_callback, [](Shim& s, int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    return INNER(s, stream_callback, device, stream, run_twice, new Callback{&s, fn, arg});
  }>;
  d["callback.order"] = [](Shim& s) {
    // Callbacks run when somebody waits.
    s.table.stream_callback = [](void* self, int32_t, bp_stream*, bp_callback fn, void* arg) {
      of(self).held.push_back({reinterpret_cast<uint64_t>(fn), reinterpret_cast<uint64_t>(arg)});
      return ok;
    };
    s.table.stream_synchronize = [](void* self, int32_t device, bp_stream* stream, uint64_t timeout) {
      const int32_t status = INNER(of(self), stream_synchronize, device, stream, timeout);
      for (const std::vector<uint64_t>& h : of(self).held) reinterpret_cast<bp_callback>(h[0])(reinterpret_cast<void*>(h[1]), BP_OK);
      of(self).held.clear();
      return status;
    };
  };
  d["callback.pending"] =
      instead<&bp_driver::stream_callback, [](Shim&, int32_t, bp_stream*, bp_callback fn, void* arg) { return fn(arg, BP_OK), ok; }>;

  d["wait.timeout"] = instead<&bp_driver::stream_synchronize, [](Shim& s, int32_t device, bp_stream* stream, uint64_t timeout) {
    if (s.calls) return int32_t{BP_TIMEOUT};  // sticky
    const int32_t status = INNER(s, stream_synchronize, device, stream, timeout);
    if (status == BP_TIMEOUT) ++s.calls;
    return status;
  }>;
  d["wait.zero"] = after<&bp_driver::synchronize, [](Shim& s, int32_t status, int32_t device, uint64_t timeout) {
    return timeout == 0 && status == BP_TIMEOUT ? int32_t{BP_PENDING} : status;
  }>;
  d["wait.in_time"] = instead<&bp_driver::event_synchronize, [](Shim& s, int32_t device, bp_event* event, uint64_t timeout) {
    const auto limit = static_cast<int64_t>(timeout);  // the largest ones become negative
    return INNER(s, event_synchronize, device, event, limit < -1 ? 0 : timeout);
  }>;

  d["thread.memory"] = instead<&bp_driver::alloc, [](Shim& s, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    return alone(s, [&] { return INNER(s, alloc, device, bytes, flags, out); });
  }>;
  d["thread.streams"] = instead<&bp_driver::event_create, [](Shim& s, int32_t device, uint32_t flags, bp_event** out) {
    return alone(s, [&] { return INNER(s, event_create, device, flags, out); });
  }>;
  d["thread.one_stream"] = instead<&bp_driver::copy_async, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device,
                                                              uint64_t src, int32_t src_device, uint64_t bytes, uint32_t flags) {
    return alone(s, [&] { return INNER(s, copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags); });
  }>;
  d["thread.handover"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes, flags, out);
      std::lock_guard lock(of(self).mutex);
      of(self).owners[*out] = thread_number();
      return status;
    };
    s.table.free = [](void* self, int32_t device, uint64_t address) {
      std::lock_guard lock(of(self).mutex);
      if (of(self).owners[address] != thread_number()) return int32_t{BP_INVALID_ARGUMENT};
      return INNER(of(self), free, device, address);
    };
  };
}

}  // namespace broken
