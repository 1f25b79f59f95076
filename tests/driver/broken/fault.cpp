// tests/driver/broken/fault.cpp: defects of the families fault and lost.
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

}  // namespace

void add_fault_defects(Defects& d) {
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
  d["fault.skipped"] = [](Shim& s) {
    s.host_exec.enqueue = [](void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
      return INNER_GROUP(of(self).in_host_exec, enqueue, device, stream, run_work, new Work{fn, arg, destroy, false}, destroy_after_run);
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
}

}  // namespace broken
