// drivers/shims/emulate/state.h: what the entries of the shim share: the inner driver, and the shim's own streams.
//
// Options: stream=inline|async, streams=<1..1024>. They count for the shim's own streams only.
#pragma once

#include <optional>
#include <utility>

#include <backplane/driver/cxx/driver.hpp>
#include <backplane/driver/cxx/event_profile.hpp>

#include "../../engine/engine.h"
#include "../../engine/host_memory.h"
#include "../inner.h"

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

/// How an EventProfile calls the inner driver.
struct InnerCalls {
  InnerDriver* inner;

  template <class... Params, class... Args>
  int32_t operator()(int32_t (*bp_driver::*slot)(void*, Params...), Args... args) const {
    return inner->status(slot, args...);
  }
  std::optional<bp_graph> graphs() const { return inner->serialize() ? std::nullopt : inner->find<bp_graph>(); }
};
using Records = EventProfile<InnerCalls>;

/// `now` with its record, which it takes if it is run.
template <class Now>
auto timed(Recorder::Owned& record, const Now& now) {
  return [&] {
    if (record) record->begin();
    now();
    if (record) record.release()->end(true);
  };
}

struct State {
  explicit State(const Host& host)
      : inner("emulate", host.inner()),
        settings(host.config()),
        own_streams(!has_streams(*inner) || !has_events(*inner)),
        own_pinned(!has_pinned(*inner)),
        knows_pinned(own_streams || own_pinned),
        events({&inner}) {}

  void check(int32_t device) {
    if (own_streams) engine.at(device).check();
  }

  /// Runs a call of the inner driver; a sticky error makes the shim's own streams of the device report it, too.
  template <class Body>
  void watched(int32_t device, Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      if (is_sticky(error.status())) engine.at(device).fault(error.status(), error.what());
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
    return !settings.workers && stream.run_if_idle([&] { watched(device, now); });
  }

  /// Before a call that waits for the stream by itself: it would hold the lock meanwhile.
  void drain_outside_lock(int32_t device, bp_stream* stream) {
    if (!inner.serialize()) return;
    try {
      inner.wait(&bp_driver::stream_synchronize, BP_NO_TIMEOUT, device, stream);
    } catch (const Error&) {  // the call that follows reports it
    }
  }

  InnerDriver inner;
  const Settings settings;
  const bool own_streams;
  const bool own_pinned;    // host_alloc is the shim's
  const bool knows_pinned;  // `pinned` has all pinned memory of the instance; else the inner driver keeps account alone
  HostMemory pinned;
  Recorder recorder;  // of the shim's own streams
  Records events;     // of the inner driver's, where it has no records
  Engine engine;      // the shim's own streams
};

template <class Group>
using Intercepted = InterceptedGroup<Group, State>;

}  // namespace backplane::driver::emulate
