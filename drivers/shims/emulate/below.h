// drivers/shims/emulate/below.h: what the entries of the shim stand on: the driver below and its groups, and the shim's own streams.
//
// Options: stream=inline|async, streams=<1..1024>. They count for the shim's own streams only.
//
// Entries for memory, streams, kernels and profiles are classes that derive from it, and the shim from all of these: there is one of it.
#pragma once

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <backplane/driver/cxx/driver.hpp>
#include <backplane/driver/cxx/event_profile.hpp>

#include "../../engine/engine.h"
#include "../../engine/host_memory.h"
#include "inner.h"

namespace backplane::driver::emulate {

struct Settings {
  bool workers;
  int32_t streams;

  explicit Settings(const char* config) {
    Options options(config);
    workers = options.choice("stream", false, {{"inline", false}, {"async", true}});
    streams = static_cast<int32_t>(options.integer("streams", 32, 1, 1024));
    options.finish();
  }
};

/// `now` with its record, which it takes if it is run.
template <class Now>
auto timed(Recorder::Owned& record, const Now& now) {
  return [&] {
    if (record) record->begin();
    now();
    if (record) record.release()->end(true);
  };
}

class Below : protected Engine {
 protected:
  using Records = EventProfile<InnerCalls>;

  explicit Below(const Host& host)
      : inner_(host.inner()),
        settings_(host.config()),
        below_(inner_.table()),
        own_streams_(!has_streams(below_) || !has_events(below_)),
        own_pinned_(!has_pinned(below_)),
        knows_pinned_(own_streams_ || own_pinned_),
        events_({&inner_}) {}
  ~Below() = default;

  void check(int32_t device) {
    if (own_streams_) at(device).check();
  }

  /// Runs a call below; a sticky error makes the shim's own streams of the device report it, too.
  template <class Body>
  void watched(int32_t device, Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      if (is_sticky(error.status())) at(device).fault(error.status(), error.what());
      throw;
    }
  }

  /// Runs `now` at once if the stream is an idle inline one, so that its error is the call's own; else queues the job, whose error makes
  /// the device fault.
  template <class Now>
  void queue(Stream& stream, int32_t device, Now&& now, const Job& job, Recorder::Owned record) {
    if (!ran_now(stream, device, timed(record, now))) stream.submit(job, std::move(record));
  }
  template <class Now>
  bool ran_now(Stream& stream, int32_t device, Now&& now) {
    return !settings_.workers && stream.run_if_idle([&] { watched(device, now); });
  }

  /// Before a call that waits for the stream by itself: it would hold the lock meanwhile.
  void drain_outside_lock(int32_t device, bp_stream* stream) {
    if (!inner_.serialize()) return;
    try {
      inner_.wait(&bp_driver::stream_synchronize, BP_NO_TIMEOUT, device, stream);
    } catch (const Error&) {  // the call that follows tells it
    }
  }

  /// A group that passes through the shim, under its lock: as the driver below has it, and as the shim offers it.
  template <class Group>
  struct Passing {
    std::optional<Group> below;
    Group offered{};
  };
  template <class Group>
  Passing<Group>& group() {
    return std::get<Passing<Group>>(passing_);
  }
  /// The entry of a group that passes through.
  template <auto Slot, class Group, class... Args>
  void pass(Args... args) {
    const Group& below = *group<Group>().below;
    if constexpr (std::is_same_v<Group, bp_compiler>) {  // any number of threads at once, whatever the driver's flags say
      inner_.group_unlocked(below.head, below.*Slot, args...);
    } else {
      inner_.group(below.head, below.*Slot, args...);
    }
  }
  /// What takes memory says that the device is in error, as alloc does.
  template <auto Slot, class Group, class... Args>
  void pass_if_sound(int32_t device, Args... args) {
    check(device);
    pass<Slot, Group>(device, args...);
  }

  Inner inner_;
  const Settings settings_;
  const bp_driver& below_;
  const bool own_streams_;
  const bool own_pinned_;    // host_alloc is the shim's
  const bool knows_pinned_;  // pinned_ has all pinned memory of the instance; else the driver below keeps account alone
  HostMemory pinned_;
  Recorder recorder_;                // of the shim's own streams
  EventProfile<InnerCalls> events_;  // of the driver's, where it has no records

  std::optional<bp_host_exec> exec_below_;
  std::tuple<Passing<bp_host_view>, Passing<bp_peer>, Passing<bp_vmm>, Passing<bp_compiler>, Passing<bp_module>, Passing<bp_profile>,
             Passing<bp_graph>>
      passing_;
};

}  // namespace backplane::driver::emulate
