// tests/driver/broken/groups.cpp: defects of the families host_exec, host_view, peer, fault and lost.
#include <string.h>

#include "shim.h"

namespace broken {
namespace {

constexpr int32_t ok = BP_OK;

struct Work {
  int32_t (*fn)(void*);
  void* arg;
  void (*destroy)(void*);
  bool ran;
};

// Runs fn before it destroys the argument, though the device has failed.
void destroy_after_run(void* arg) {
  auto* work = static_cast<Work*>(arg);
  if (!work->ran) work->fn(work->arg);
  if (work->destroy) work->destroy(work->arg);
  delete work;
}

int32_t run_work(void* arg) {
  auto* work = static_cast<Work*>(arg);
  work->ran = true;
  return work->fn(work->arg);
}

struct Callback {
  bp_callback fn;
  void* arg;
};

void all_is_well(void* arg, int32_t) {
  auto* callback = static_cast<Callback*>(arg);
  callback->fn(callback->arg, BP_OK);
  delete callback;
}

// Notes that the device below has failed.
void note_fault(Shim& s) {
  s.table.synchronize = [](void* self, int32_t device, uint64_t timeout) {
    const int32_t status = INNER(of(self), synchronize, device, timeout);
    if (status == BP_FAULT) of(self).faulted = true;
    return status;
  };
}

// Notes that device 0 below is gone; the call itself tells of it.
void note_loss(Shim& s) {
  s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    const int32_t status = of(self).faulted ? int32_t{BP_DEVICE_LOST} : INNER(of(self), alloc, device, bytes, flags, out);
    if (status == BP_DEVICE_LOST) of(self).faulted = true;
    return status;
  };
}

// Views of a copy, written back by unmap if `keep`.
void shadow_views(Shim& s, bool keep) {
  s.view.map = [](void* self, int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    void* memory = nullptr;
    const int32_t status = INNER_GROUP(of(self).in_view, map, device, address, bytes, access, &memory);
    if (status != BP_OK) return status;
    std::string& shadow = of(self).shadows[address];
    shadow.assign(static_cast<char*>(memory), bytes);
    *out = shadow.data();
    return ok;
  };
  s.view.unmap = [](void*, int32_t, uint64_t, void*) { return ok; };
  if (!keep) return;
  s.view.unmap = [](void* self, int32_t, uint64_t address, void*) {
    const std::string& shadow = of(self).shadows[address];
    memcpy(reinterpret_cast<void*>(address), shadow.data(), shadow.size());  // the sound driver's views have the same address
    of(self).shadows.erase(address);
    return ok;
  };
}

}  // namespace

void add_group_defects(Defects& d) {
  d["host_exec.order"] = [](Shim& s) {
    // Functions run when somebody waits.
    s.exec.enqueue = [](void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
      of(self).held.push_back({static_cast<uint64_t>(device), reinterpret_cast<uint64_t>(stream), reinterpret_cast<uint64_t>(fn),
                               reinterpret_cast<uint64_t>(arg), reinterpret_cast<uint64_t>(destroy)});
      return ok;
    };
    s.table.stream_synchronize = [](void* self, int32_t device, bp_stream* stream, uint64_t timeout) {
      INNER(of(self), stream_synchronize, device, stream, timeout);
      for (const std::vector<uint64_t>& h : of(self).held) {
        INNER_GROUP(of(self).in_exec, enqueue, static_cast<int32_t>(h[0]), reinterpret_cast<bp_stream*>(h[1]),
                    reinterpret_cast<int32_t (*)(void*)>(h[2]), reinterpret_cast<void*>(h[3]), reinterpret_cast<void (*)(void*)>(h[4]));
      }
      of(self).held.clear();
      return INNER(of(self), stream_synchronize, device, stream, timeout);
    };
  };
  d["host_exec.pending"] = [](Shim& s) {
    // The third function and those after it run on another stream.
    s.exec.enqueue = [](void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
      if (++of(self).calls > 2) stream = side_stream(of(self));
      return INNER_GROUP(of(self).in_exec, enqueue, device, stream, fn, arg, destroy);
    };
  };
  d["host_exec.destroy"] = [](Shim& s) {
    s.exec.enqueue = [](void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
      int32_t count = 0;
      INNER(of(self), device_count, &count);
      if (device >= count) return int32_t{BP_INVALID_DEVICE};  // and forgets destroy
      return INNER_GROUP(of(self).in_exec, enqueue, device, stream, fn, arg, destroy);
    };
  };
  d["host_exec.map"] = [](Shim& s) {
    s.exec.map = [](void* self, int32_t device, uint64_t address, void** out) {
      if (INNER_GROUP(of(self).in_exec, map, device, address, out) != BP_OK) *out = reinterpret_cast<void*>(address);
      return ok;
    };
  };

  d["host_view.map"] = [](Shim& s) { shadow_views(s, false); };
  d["host_view.flags"] = [](Shim& s) { shadow_views(s, true); };
  d["host_view.invalid"] = [](Shim& s) {
    s.view.map = [](void*, int32_t, uint64_t address, uint64_t, int32_t, void** out) {
      *out = reinterpret_cast<void*>(address);
      return ok;
    };
  };

  d["peer.access"] = [](Shim& s) {
    s.peer.enable = [](void* self, int32_t device, int32_t peer) {
      if (++of(self).calls > 1) return int32_t{BP_INVALID_ARGUMENT};  // "already enabled"
      return INNER_GROUP(of(self).in_peer, enable, device, peer);
    };
  };
  d["peer.invalid"] = [](Shim& s) {
    s.peer.can_access = [](void* self, int32_t device, int32_t peer, int32_t* out) {
      if (INNER_GROUP(of(self).in_peer, can_access, device, peer, out) != BP_OK) *out = 0;
      return ok;
    };
  };
  d["peer.copies"] = [](Shim& s) {
    s.table.copy_async = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
      if (between_devices(dst_device, src_device)) return ok;
      return INNER(of(self), copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };

  d["fault.sticky"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes, flags, out);
      return status == BP_FAULT ? (*out = 0x1000, ok) : status;
    };
  };
  d["fault.streams"] = [](Shim& s) {
    s.table.stream_query = [](void* self, int32_t device, bp_stream* stream) {
      const int32_t status = INNER(of(self), stream_query, device, stream);
      return stream && status == BP_FAULT ? ok : status;
    };
  };
  d["fault.events"] = [](Shim& s) {
    s.table.event_synchronize = [](void* self, int32_t device, bp_event* event, uint64_t timeout) {
      const int32_t status = INNER(of(self), event_synchronize, device, event, timeout);
      return status == BP_FAULT ? ok : status;
    };
  };
  d["fault.release"] = [](Shim& s) {
    note_fault(s);
    s.table.free = [](void* self, int32_t device, uint64_t address) {
      return of(self).faulted ? int32_t{BP_FAULT} : INNER(of(self), free, device, address);
    };
  };
  d["fault.isolated"] = [](Shim& s) {
    note_fault(s);
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      return of(self).faulted ? int32_t{BP_FAULT} : INNER(of(self), alloc, device, bytes, flags, out);
    };
  };
  d["fault.callbacks"] = [](Shim& s) {
    s.table.stream_callback = [](void* self, int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
      return INNER(of(self), stream_callback, device, stream, all_is_well, new Callback{fn, arg});
    };
  };
  d["lost.sticky"] = [](Shim& s) {
    s.table.event_query = [](void* self, int32_t device, bp_event* event) {
      const int32_t status = INNER(of(self), event_query, device, event);
      return status == BP_DEVICE_LOST ? ok : status;
    };
  };
  d["lost.release"] = [](Shim& s) {
    note_loss(s);
    s.table.free = [](void* self, int32_t device, uint64_t address) {
      return of(self).faulted ? int32_t{BP_DEVICE_LOST} : INNER(of(self), free, device, address);
    };
  };
  d["lost.isolated"] = note_loss;  // takes all devices along
  d["fault.skipped"] = [](Shim& s) {
    s.exec.enqueue = [](void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
      return INNER_GROUP(of(self).in_exec, enqueue, device, stream, run_work, new Work{fn, arg, destroy, false}, destroy_after_run);
    };
  };
}

}  // namespace broken
