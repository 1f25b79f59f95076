// tests/driver/broken/fault.cpp: defects of the families fault and lost.
#include "shim.h"

namespace broken {
namespace {

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

// Notes that device 0 below is gone; the call itself reports it.
void note_loss(Shim& s) {
  s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    const int32_t status = of(self).faulted ? int32_t{BP_DEVICE_LOST} : INNER(of(self), alloc, device, bytes, flags, out);
    if (status == BP_DEVICE_LOST) of(self).faulted = true;
    return status;
  };
}

}  // namespace

void add_fault_defects(Defects& d) {
  d["fault.sticky"] = after<&bp_driver::alloc, [](Shim& s, int32_t status, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    return status == BP_FAULT ? (*out = 0x1000, ok) : status;
  }>;
  d["fault.streams"] = after<&bp_driver::stream_query, [](Shim& s, int32_t status, int32_t device, bp_stream* stream) {
    return stream && status == BP_FAULT ? ok : status;
  }>;
  d["fault.events"] = after<&bp_driver::event_synchronize, [](Shim& s, int32_t status, int32_t device, bp_event* event, uint64_t timeout) {
    return status == BP_FAULT ? ok : status;
  }>;
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
  d["fault.callbacks"] = instead<&bp_driver::stream_callback, [](Shim& s, int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    return INNER(s, stream_callback, device, stream, all_is_well, new Callback{&s, fn, arg});
  }>;
  d["fault.skipped"] = instead<&bp_host_exec::enqueue, [](Shim& s, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg,
                                                          void (*destroy)(void*)) {
    return INNER_GROUP(s.in_host_exec, enqueue, device, stream, run_work, new Work{fn, arg, destroy, false}, destroy_after_run);
  }>;
  d["lost.sticky"] = after<&bp_driver::event_query,
                           [](Shim& s, int32_t status, int32_t device, bp_event* event) { return status == BP_DEVICE_LOST ? ok : status; }>;
  d["lost.release"] = [](Shim& s) {
    note_loss(s);
    s.table.free = [](void* self, int32_t device, uint64_t address) {
      return of(self).faulted ? int32_t{BP_DEVICE_LOST} : INNER(of(self), free, device, address);
    };
  };
  d["lost.isolated"] = note_loss;  // takes all devices along
}

}  // namespace broken
