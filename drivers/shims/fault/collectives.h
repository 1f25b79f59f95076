// drivers/shims/fault/collectives.h: what is intercepted of bp.collective: communicators fail, or hang until they are aborted.
#pragma once

#include <cstdio>
#include <string>

#include "communicators.h"
#include "state.h"

namespace backplane::driver::fault {

class CollectiveEntries : public Intercepted<bp_collective> {
 public:
  using InterceptedGroup::InterceptedGroup;

  /// For close: what hangs continues.
  void release_all() { communicators_.release_all(); }

  void create(int32_t device, const bp_comm_config* config, bp_comm** out) {
    state.alive(device);
    (*this)(&bp_collective::create, device, config, out);
    communicators_.add(*out, device);
  }
  void split(bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out) {
    const int32_t device = communicators_.find(comm)->device();
    (*this)(&bp_collective::split, comm, color, config, out);
    if (*out) communicators_.add(*out, device);
  }
  void destroy(bp_comm* comm, uint64_t timeout_ns) {
    const auto found = communicators_.find(comm);
    if (!found->wait(timeout_ns))
      throw Error(BP_TIMEOUT, state.settings.collective_hang.text("collective.destroy: its work is not complete"));
    state.release(found->device(), [&] { (*this)(&bp_collective::destroy, comm, timeout_ns); });
    communicators_.remove(comm);
  }
  void abort(bp_comm* comm) {
    const auto found = communicators_.find(comm);
    (*this)(&bp_collective::abort, comm);
    found->release();
  }
  void status(bp_comm* comm, int32_t* out, char* text, uint64_t size) {
    const std::string failure = communicators_.find(comm)->failure();
    (*this)(&bp_collective::status, comm, out, text, size);
    if (failure.empty()) return;
    *out = BP_INTERNAL;
    if (size) std::snprintf(text, size, "%s", failure.c_str());
  }
  /// Every call that queues.
  template <class Slot, class... Args>
  int32_t pass(bp_comm* comm, bp_stream* stream, Args... args) {
    queue(comm, stream, [&] { InterceptedGroup::pass<Slot>(comm, stream, args...); });
    return BP_OK;
  }
  using InterceptedGroup::pass;

 private:
  template <class Call>
  void queue(bp_comm* comm, bp_stream* stream, Call&& call) {
    const auto known = communicators_.find(comm);
    if (!known->failure().empty()) throw Error(BP_INTERNAL, "the communicator has failed: " + known->failure());
    const int32_t device = known->device();
    DeviceFault& found = state.alive(device);
    const auto fail = [&](const std::string& text) { fail_communicator(comm, *known, text); };
    if (state.strikes(state.settings.collective, device)) {
      return fail(state.settings.collective.text("a transfer between ranks failed"));
    }
    if (state.strikes(state.settings.collective_hang, device)) return hang_communicator(found, known, stream);
    if (!state.queue(found, device, stream, "a collective")) {
      if (!found.hangs(stream)) fail(state.settings.kernel.text("its device is in error"));
      return;
    }
    if (state.settings.kernel.armed() && state.inner->stream_callback) gate(comm, known, found, stream);
    call();
  }

  /// The peers see an abort, where the inner driver has one.
  void fail_communicator(bp_comm* comm, CommunicatorFault& known, const std::string& text) {
    known.fail(text);
    InterceptedGroup::status(&bp_collective::abort, comm);
  }
  /// Before a collective on its stream: a device that has failed by then takes part in nothing, as none that is really in error does.
  void gate(bp_comm* comm, const Communicators::Known& known, DeviceFault& found, bp_stream* stream) {
    state.inner.callback(known->device(), stream, [this, comm, known, fault = &found](int32_t) {
      if (fault->sticky() != BP_OK) fail_communicator(comm, *known, state.settings.kernel.text("its device is in error"));
    });
  }
  /// Where the inner driver has no callbacks nothing can let the stream go on.
  void hang_communicator(DeviceFault& found, const Communicators::Known& comm, bp_stream* stream) {
    if (!state.inner->stream_callback) return found.hang(stream);
    comm->hang();
    state.inner.callback(comm->device(), stream, [comm](int32_t) { comm->stand_still(); });
  }

  Communicators communicators_;
};

}  // namespace backplane::driver::fault
