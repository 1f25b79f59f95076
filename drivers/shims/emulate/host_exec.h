// drivers/shims/emulate/host_exec.h: host functions as work of the shim's own streams, by the inner driver or on the memory that it shows.
#pragma once

#include <string>

#include "state.h"

namespace backplane::driver::emulate {

class HostExecEntries : public PassingGroup<bp_host_exec> {
 public:
  HostExecEntries(State& state, PassingGroup<bp_host_view>& host_view) : PassingGroup(state.inner), state_(state), host_view_(host_view) {}

  /// False if there is no way to run them.
  bool find() {
    constexpr uint32_t in_place = BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT;
    return PassingGroup::find() || (state_.own_streams && (host_view_.flags() & in_place) == in_place);
  }

  void enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    if (!state_.own_streams) {
      return state_.events.around(Records::work(BP_ACTIVITY_KERNEL, device), stream,
                                  [&] { (*this)(&bp_host_exec::enqueue, device, stream, fn, arg, destroy); });
    }
    try {
      if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
      Stream& on = state_.engine.usable(device, stream);
      on.submit(job_of([this, device, fn, arg, destroy](int32_t status) { run_host_function(device, status, fn, arg, destroy); }),
                state_.recorder.queue(BP_ACTIVITY_KERNEL, device, stream));
    } catch (...) {
      if (destroy) destroy(arg);
      throw;
    }
  }

  void map(int32_t device, uint64_t address, void** out) {
    if (found()) {
      (*this)(&bp_host_exec::map, device, address, out);
      return;
    }
    // The view is coherent and at the same address, so it need not stay open; asking for it checks the address.
    void* seen = nullptr;
    host_view_(&bp_host_view::map, device, address, uint64_t{1}, int32_t{BP_ACCESS_READ_WRITE}, &seen);
    host_view_(&bp_host_view::unmap, device, address, seen);
    *out = seen;
  }

 private:
  void run_host_function(int32_t device, int32_t status, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    if (found() && status == BP_OK) {
      // The inner driver calls destroy, whatever happens.
      (*this)(&bp_host_exec::enqueue, device, static_cast<bp_stream*>(nullptr), fn, arg, destroy);
      state_.inner.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
      return;
    }
    struct Destroy {
      void (*call)(void*);
      void* arg;
      ~Destroy() {
        if (call) call(arg);
      }
    } at_end{destroy, arg};
    if (status != BP_OK) return;
    const int32_t result = fn(arg);
    if (result != BP_OK) throw Error(BP_FAULT, std::string("a host_exec function returned ") + status_name(result));
  }

  State& state_;
  PassingGroup<bp_host_view>& host_view_;
};

}  // namespace backplane::driver::emulate
