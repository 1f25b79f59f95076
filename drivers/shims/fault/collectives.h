// drivers/shims/fault/collectives.h: what is intercepted of bp.collective: communicators fail, or hang until they are aborted.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "below.h"
#include "communicators.h"

namespace backplane::driver::fault {

class CollectiveFaults : public virtual Below {
 public:
  using Below::Below;

  void collective_create(int32_t device, const bp_comm_config* config, bp_comm** out) {
    alive(device);
    pass_group<&bp_collective::create>(device, config, out);
    communicators_.add(*out, device);
  }
  void collective_split(bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out) {
    const int32_t device = communicators_.find(comm)->device();
    pass_group<&bp_collective::split>(comm, color, config, out);
    if (*out) communicators_.add(*out, device);
  }
  void collective_destroy(bp_comm* comm, uint64_t timeout_ns) {
    const auto found = communicators_.find(comm);
    if (!found->wait(timeout_ns)) throw Error(BP_TIMEOUT, settings_.collective_hang.text("collective.destroy: its work is not complete"));
    release(found->device(), call_group<&bp_collective::destroy>(&bp_collective::destroy, comm, timeout_ns));
    communicators_.remove(comm);
  }
  void collective_abort(bp_comm* comm) {
    const auto found = communicators_.find(comm);
    pass_group<&bp_collective::abort>(comm);
    found->release();
  }
  void collective_status(bp_comm* comm, int32_t* out, char* text, uint64_t size) {
    const std::string failure = communicators_.find(comm)->failure();
    pass_group<&bp_collective::status>(comm, out, text, size);
    if (failure.empty()) return;
    *out = BP_INTERNAL;
    if (size) std::snprintf(text, size, "%s", failure.c_str());
  }
  /// Every call that queues.
  template <auto Slot, class... Args>
  void collective_queue(bp_comm* comm, bp_stream* stream, Args... args) {
    const auto found = communicators_.find(comm);
    if (!found->failure().empty()) throw Error(BP_INTERNAL, "the communicator has failed: " + found->failure());
    const int32_t device = found->device();
    DeviceFault& state = alive(device);
    if (strikes(settings_.collective, device)) return fail_communicator(comm, settings_.collective.text("a transfer between ranks failed"));
    if (strikes(settings_.collective_hang, device)) return hang_communicator(state, found, stream);
    if (!queue(state, device, stream, "a collective")) {
      if (!state.hangs(stream)) fail_communicator(comm, settings_.kernel.text("its device is in error"));
      return;
    }
    if (settings_.kernel.armed() && below_.stream_callback) gate(comm, found, state, stream);
    pass_group<Slot>(comm, stream, args...);
  }

 protected:
  Communicators communicators_;

 private:
  /// The peers see an abort, where the driver below has one.
  void fail_communicator(bp_comm* comm, const std::string& text) { fail_communicator(comm, *communicators_.find(comm), text); }
  void fail_communicator(bp_comm* comm, CommunicatorFault& known, const std::string& text) {
    known.fail(text);
    call_group<&bp_collective::abort>(&bp_collective::abort, comm);
  }
  /// Before a collective on its stream: a device that has failed by then takes part in nothing, as none that is really in error does.
  void gate(bp_comm* comm, const Communicators::Known& known, DeviceFault& state, bp_stream* stream) {
    struct Gate {
      CollectiveFaults* owner;
      bp_comm* comm;
      Communicators::Known known;
      DeviceFault* state;
    };
    auto kept = std::make_unique<Gate>(Gate{this, comm, known, &state});
    const auto pass_if_well = [](void* given, int32_t) {
      const std::unique_ptr<Gate> one(static_cast<Gate*>(given));
      if (one->state->sticky() == BP_OK) return;
      one->owner->fail_communicator(one->comm, *one->known, one->owner->settings_.kernel.text("its device is in error"));
    };
    checked_call(below_.stream_callback(below_.self, known->device(), stream, pass_if_well, kept.get()));
    static_cast<void>(kept.release());
  }
  /// Where the driver below has no callbacks nothing can let the stream go on.
  void hang_communicator(DeviceFault& state, const Communicators::Known& comm, bp_stream* stream) {
    if (!below_.stream_callback) return state.hang(stream);
    comm->hang();
    auto kept = std::make_unique<Communicators::Known>(comm);
    const auto stand_still = [](void* given, int32_t) {
      const std::unique_ptr<Communicators::Known> one(static_cast<Communicators::Known*>(given));
      (*one)->stand_still();
    };
    checked_call(below_.stream_callback(below_.self, comm->device(), stream, stand_still, kept.get()));
    static_cast<void>(kept.release());
  }
};

}  // namespace backplane::driver::fault
