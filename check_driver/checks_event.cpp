// check_driver/checks_event.cpp: family "event": records, waits and times.
#include <chrono>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace event_impl {

constexpr char record_rule[] = "The event completes when all work queued so far on the stream has";

void record(Context& c, bp_stream* stream, bp_event* event) { c.expect(CALL(c, event_record, 0, stream, event, 0u), BP_OK, record_rule); }

void unrecorded(Context& c) {
  bp_event* event = c.event(0);
  c.expect(CALL(c, event_query, 0, event), BP_OK, "BP_OK: complete, or never recorded");
  for (uint64_t timeout : {uint64_t{0}, BP_NO_TIMEOUT}) {
    c.expect(CALL(c, event_synchronize, 0, event, timeout), BP_OK, "returns at once if never recorded");
  }
  bp_stream* stream = c.stream(0);
  c.expect(CALL(c, stream_wait, 0, stream, event), BP_OK, "a no-op if never recorded");
  c.synchronize(0, stream);
  c.expect(CALL(c, event_destroy, 0, event), BP_OK, "owner: the caller");
  const auto ipc = c.group<bp_ipc>();
  if (ipc && (ipc->head.flags & BP_IPC_EVENTS)) return;
  bp_event* shared = nullptr;
  const int32_t status = CALL(c, event_create, 0, BP_EVENT_IPC, &shared);
  c.require((status == BP_UNSUPPORTED || status == BP_INVALID_ARGUMENT) && !shared,
            "UNSUPPORTED or INVALID_ARGUMENT with BP_EVENT_IPC, where bp.ipc is not offered or without BP_IPC_EVENTS",
            "event_create with BP_EVENT_IPC gave %s, expected BP_UNSUPPORTED or BP_INVALID_ARGUMENT", status_text(status).c_str());
}

void recorded(Context& c) {
  for (uint32_t flags : {0u, BP_EVENT_TIMING, BP_EVENT_BLOCKING, BP_EVENT_TIMING | BP_EVENT_BLOCKING}) {
    bp_stream* stream = c.stream(0);
    bp_event* event = c.event(0, flags);
    BusyStream hold(c, 0, stream);
    record(c, stream, event);
    hold.not_waited_for(record_rule);
    stays_pending(c, hold, record_rule, [&] { return CALL(c, event_query, 0, event); });
    hold.release_later();
    c.expect(CALL(c, event_synchronize, 0, event, BP_NO_TIMEOUT), BP_OK, "Waits for the latest record at the time of the call");
    c.expect(CALL(c, event_query, 0, event), BP_OK, record_rule);
    c.expect(CALL(c, event_destroy, 0, event), BP_OK, "owner: the caller");
    c.expect(CALL(c, stream_destroy, 0, stream), BP_OK, "owner: the caller");
  }
}

void rerecorded(Context& c) {
  const char* rule = "A second record replaces the first";
  bp_stream *idle = c.stream(0), *busy = c.stream(0);
  bp_event* event = c.event(0);
  record(c, idle, event);
  c.synchronize(0, idle);
  c.expect(CALL(c, event_query, 0, event), BP_OK, record_rule);
  BusyStream hold(c, 0, busy);
  record(c, busy, event);
  stays_pending(c, hold, rule, [&] { return CALL(c, event_query, 0, event); });
  record(c, idle, event);
  c.expect(CALL(c, event_synchronize, 0, event, BP_NO_TIMEOUT), BP_OK, rule);
  hold.not_waited_for(rule);
  c.expect(CALL(c, event_query, 0, event), BP_OK, rule);
}

// A wait keeps the record that it was called with, though the event is recorded again, on an idle stream and on a busy one.
void wait_keeps(Context& c) {
  const char* rule = "A second record replaces the first: earlier waits keep the first";
  bp_stream *busy = c.stream(0), *waiting = c.stream(0), *other = c.stream(0);
  bp_event *event = c.event(0), *passed = c.event(0);
  {
    BusyStream hold(c, 0, busy);
    record(c, busy, event);
    c.expect(CALL(c, stream_wait, 0, waiting, event), BP_OK, rule);
    record(c, other, event);
    record(c, waiting, passed);
    stays_pending(c, hold, rule, [&] { return CALL(c, event_query, 0, passed); });
  }
  c.synchronize(0);
  record(c, other, event);
  c.expect(CALL(c, stream_wait, 0, waiting, event), BP_OK, rule);
  BusyStream hold(c, 0, busy);
  record(c, busy, event);
  record(c, waiting, passed);
  c.expect(CALL(c, event_synchronize, 0, passed, BP_NO_TIMEOUT), BP_OK, rule);
  hold.not_waited_for(rule);
}

void destroyed(Context& c) {
  const char* rule = "Pending records may still complete";
  bp_stream *busy = c.stream(0), *waiting = c.stream(0);
  bp_event *event = c.event(0), *passed = c.event(0);
  BusyStream hold(c, 0, busy);
  record(c, busy, event);
  c.expect(CALL(c, stream_wait, 0, waiting, event), BP_OK, rule);
  c.expect(CALL(c, event_destroy, 0, event), BP_OK, rule);
  hold.not_waited_for(rule);
  record(c, waiting, passed);
  stays_pending(c, hold, rule, [&] { return CALL(c, event_query, 0, passed); });
  hold.release();
  c.synchronize(0, busy);
  c.synchronize(0, waiting);
}

// Between the limits that this program's clock sets: what ran between the records, and what ran around them.
void elapsed(Context& c) {
  const char* rule = "Time between two completed records of the same device (times in nanoseconds)";
  using Clock = std::chrono::steady_clock;
  bp_stream* stream = c.stream(0);
  bp_event *start = c.event(0, BP_EVENT_TIMING), *end = c.event(0, BP_EVENT_TIMING);
  const auto outer_begin = Clock::now();
  record(c, stream, start);
  c.expect(CALL(c, event_synchronize, 0, start, BP_NO_TIMEOUT), BP_OK, record_rule);
  const auto inner_begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto inner_end = Clock::now();
  record(c, stream, end);
  c.expect(CALL(c, event_synchronize, 0, end, BP_NO_TIMEOUT), BP_OK, record_rule);
  const auto outer_end = Clock::now();
  int64_t ns = -1;
  c.expect(CALL(c, event_elapsed, 0, start, end, &ns), BP_OK, rule);
  // A tenth for a device clock that runs a little otherwise.
  const int64_t least = std::chrono::nanoseconds(inner_end - inner_begin).count() * 9 / 10;
  const int64_t most = std::chrono::nanoseconds(outer_end - outer_begin).count() * 11 / 10 + 1000000;
  c.require(ns >= least && ns <= most, rule, "event_elapsed says %lld ns, expected %lld to %lld", wide(ns), wide(least), wide(most));
}

void elapsed_errors(Context& c) {
  const char* rule = "errors: PENDING if one has not completed, INVALID_ARGUMENT if one was never recorded or made without BP_EVENT_TIMING";
  bp_stream* stream = c.stream(0);
  bp_event *timed = c.event(0, BP_EVENT_TIMING), *fresh = c.event(0, BP_EVENT_TIMING), *untimed = c.event(0, 0);
  record(c, stream, timed);
  record(c, stream, untimed);
  c.synchronize(0, stream);
  int64_t ns = 77;
  c.expect(CALL(c, event_elapsed, 0, timed, fresh, &ns), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL(c, event_elapsed, 0, fresh, timed, &ns), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL(c, event_elapsed, 0, timed, untimed, &ns), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL(c, event_elapsed, 0, untimed, timed, &ns), BP_INVALID_ARGUMENT, rule);
  c.require(ns == 77, rules::errors, "event_elapsed failed and yet set *ns to %lld", wide(ns));
}

void elapsed_pending(Context& c) {
  bp_stream* stream = c.stream(0);
  bp_event *start = c.event(0, BP_EVENT_TIMING), *end = c.event(0, BP_EVENT_TIMING);
  record(c, stream, start);
  c.synchronize(0, stream);
  BusyStream hold(c, 0, stream);
  record(c, stream, end);
  int64_t ns = 77;
  stays_pending(c, hold, "errors: PENDING if one has not completed", [&] { return CALL(c, event_elapsed, 0, start, end, &ns); });
}

void across_devices(Context& c) {
  const char* rule = "The event may be of another device of the same instance";
  bp_stream *busy = c.stream(0), *waiting = c.stream(1);
  bp_event *event = c.event(0), *passed = c.event(1);
  BusyStream hold(c, 0, busy);
  record(c, busy, event);
  c.expect(CALL(c, stream_wait, 1, waiting, event), BP_OK, rule);
  c.expect(CALL(c, event_record, 1, waiting, passed, 0u), BP_OK, rule);
  stays_pending(c, hold, rule, [&] { return CALL(c, event_query, 1, passed); });
  hold.release();
  c.synchronize(1, waiting);
}

}  // namespace event_impl

Checks event_checks() {
  using namespace event_impl;
  constexpr uint64_t needs = needs_streams | needs_events;
  return {
      {"event.unrecorded", "complete; a wait for it is a no-op", needs, unrecorded},
      {"event.recorded", "completes with the work before it", needs, recorded},
      {"event.rerecorded", "a second record replaces the first", needs, rerecorded},
      {"event.wait_keeps", "earlier waits keep the first record", needs, wait_keeps},
      {"event.destroyed", "may be destroyed while it is pending", needs, destroyed},
      {"event.elapsed", "time between two records, in nanoseconds", needs, elapsed},
      {"event.elapsed_errors", "no time without TIMING or a record", needs, elapsed_errors},
      {"event.elapsed_pending", "no time before both are complete", needs, elapsed_pending},
      {"event.across_devices", "a stream waits for another device's event", needs | needs_two_devices, across_devices},
  };
}

}  // namespace backplane::check
