// drivers/shims/fault/collectives.h: what is intercepted of bp.collective: communicators fail, or hang until they are aborted.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "communicators.h"
#include "state.h"

namespace backplane::driver::fault {

class CollectiveEntries : public PassingGroup<bp_collective> {
 public:
  explicit CollectiveEntries(State& state) : PassingGroup(state.inner), state_(state) {}

  /// For close: what hangs goes on.
  void release_all() { communicators_.release_all(); }

  void create(int32_t device, const bp_comm_config* config, bp_comm** out) {
    state_.alive(device);
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
      throw Error(BP_TIMEOUT, state_.settings.collective_hang.text("collective.destroy: its work is not complete"));
    state_.release(found->device(), [&] { (*this)(&bp_collective::destroy, comm, timeout_ns); });
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
    queue(comm, stream, [&] { PassingGroup::pass<Slot>(comm, stream, args...); });
    return BP_OK;
  }
  using PassingGroup::pass;

 private:
  template <class Call>
  void queue(bp_comm* comm, bp_stream* stream, Call&& call) {
    const auto found = communicators_.find(comm);
    if (!found->failure().empty()) throw Error(BP_INTERNAL, "the communicator has failed: " + found->failure());
    const int32_t device = found->device();
    DeviceFault& state = state_.alive(device);
    if (state_.strikes(state_.settings.collective, device))
      return fail_communicator(comm, state_.settings.collective.text("a transfer between ranks failed"));
    if (state_.strikes(state_.settings.collective_hang, device)) return hang_communicator(state, found, stream);
    if (!state_.queue(state, device, stream, "a collective")) {
      if (!state.hangs(stream)) fail_communicator(comm, state_.settings.kernel.text("its device is in error"));
      return;
    }
    if (state_.settings.kernel.armed() && state_.inner->stream_callback) gate(comm, found, state, stream);
    call();
  }

  /// The peers see an abort, where the inner driver has one.
  void fail_communicator(bp_comm* comm, const std::string& text) { fail_communicator(comm, *communicators_.find(comm), text); }
  void fail_communicator(bp_comm* comm, CommunicatorFault& known, const std::string& text) {
    known.fail(text);
    PassingGroup::status(&bp_collective::abort, comm);
  }
  /// Before a collective on its stream: a device that has failed by then takes part in nothing, as none that is really in error does.
  void gate(bp_comm* comm, const Communicators::Known& known, DeviceFault& state, bp_stream* stream) {
    struct Gate {
      CollectiveEntries* owner;
      bp_comm* comm;
      Communicators::Known known;
      DeviceFault* state;
    };
    auto kept = std::make_unique<Gate>(Gate{this, comm, known, &state});
    const auto pass_if_well = [](void* given, int32_t) {
      const std::unique_ptr<Gate> one(static_cast<Gate*>(given));
      if (one->state->sticky() == BP_OK) return;
      one->owner->fail_communicator(one->comm, *one->known, one->owner->state_.settings.kernel.text("its device is in error"));
    };
    state_.inner(&bp_driver::stream_callback, known->device(), stream, pass_if_well, kept.get());
    static_cast<void>(kept.release());
  }
  /// Where the inner driver has no callbacks nothing can let the stream go on.
  void hang_communicator(DeviceFault& state, const Communicators::Known& comm, bp_stream* stream) {
    if (!state_.inner->stream_callback) return state.hang(stream);
    comm->hang();
    auto kept = std::make_unique<Communicators::Known>(comm);
    const auto stand_still = [](void* given, int32_t) {
      const std::unique_ptr<Communicators::Known> one(static_cast<Communicators::Known*>(given));
      (*one)->stand_still();
    };
    state_.inner(&bp_driver::stream_callback, comm->device(), stream, stand_still, kept.get());
    static_cast<void>(kept.release());
  }

  State& state_;
  Communicators communicators_;
};

}  // namespace backplane::driver::fault
