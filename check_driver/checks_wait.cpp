// check_driver/checks_wait.cpp: family "wait": timeouts of the three waits.
#include <string.h>

#include <functional>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace wait_impl {

constexpr char rule[] = "errors: TIMEOUT (not sticky): a wait's timeout expired; the work goes on";
constexpr uint64_t millisecond = 1000000;

// The waits that the driver has, each for the held stream.
struct Waits {
  Waits(Context& c, bp_stream* stream, bp_event* event) {
    all.push_back([&c](uint64_t timeout) { return CALL(c, synchronize, 0, timeout); });
    if (c.table().stream_synchronize)
      all.push_back([&c, stream](uint64_t timeout) { return CALL(c, stream_synchronize, 0, stream, timeout); });
    if (event) all.push_back([&c, event](uint64_t timeout) { return CALL(c, event_synchronize, 0, event, timeout); });
  }
  std::vector<std::function<int32_t(uint64_t)>> all;
};

bp_event* event_if_offered(Context& c) { return c.table().event_create ? c.event(0) : nullptr; }

void record_if(Context& c, bp_stream* stream, bp_event* event) {
  if (event)
    c.expect(CALL(c, event_record, 0, stream, event, 0u), BP_OK, "The event completes when all work queued so far on the stream has");
}

// Expects TIMEOUT of a wait that was called while the hold lasts.
void expires(Context& c, const BusyStream& hold, int32_t status, const char* why) {
  hold.not_waited_for(why);
  if (status != BP_TIMEOUT) hold.still_held();
  c.expect(status, BP_TIMEOUT, why);
}

void timeout(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* stream = c.stream(0);
  bp_event* event = event_if_offered(c);
  uint8_t *sent = c.pinned(bytes, 9), *back = c.pinned(bytes);
  const uint64_t a = c.alloc(0, bytes);
  const Waits waits(c, stream, event);
  BusyStream hold(c, 0, stream);
  c.expect(CALL(c, copy_async, 0, stream, a, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rule);
  c.expect(CALL(c, copy_async, 0, stream, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, a, 0, bytes, 0u), BP_OK, rule);
  record_if(c, stream, event);
  for (const auto& wait : waits.all) {
    for (int again = 0; again < 2; ++again) expires(c, hold, wait(millisecond), rule);
  }
  hold.release();
  for (const auto& wait : waits.all) c.expect(wait(BP_NO_TIMEOUT), BP_OK, rule);
  c.same(back, sent, bytes, rule, "the work that went on after the timeout");
  c.smoke(0, rule);
}

void zero(Context& c) {
  const char* zero_rule = "BP_NO_TIMEOUT: a wait without a timeout; 0 only queries";
  bp_stream* stream = c.stream(0);
  bp_event* event = event_if_offered(c);
  const Waits waits(c, stream, event);
  for (const auto& wait : waits.all) c.expect(wait(0), BP_OK, zero_rule);
  BusyStream hold(c, 0, stream);
  record_if(c, stream, event);
  for (const auto& wait : waits.all) expires(c, hold, wait(0), zero_rule);
  hold.release();
  for (const auto& wait : waits.all) c.expect(wait(BP_NO_TIMEOUT), BP_OK, zero_rule);
  for (const auto& wait : waits.all) c.expect(wait(0), BP_OK, zero_rule);
}

// Waits that the work ends. The long ones overflow when they are added to a clock.
void in_time(Context& c) {
  const char* long_rule = "BP_NO_TIMEOUT: a wait without a timeout";
  bp_stream* stream = c.stream(0);
  bp_event* event = event_if_offered(c);
  const Waits waits(c, stream, event);
  for (uint64_t limit : {BP_NO_TIMEOUT, UINT64_MAX - 1, uint64_t{1} << 63, (uint64_t{1} << 63) - 1, 60000 * millisecond}) {
    for (const auto& wait : waits.all) {
      BusyStream hold(c, 0, stream);
      record_if(c, stream, event);
      hold.release_later();
      c.expect(wait(limit), BP_OK, long_rule);
      c.require(!hold.held(), rules::wait, "%s returned BP_OK while the work was pending", traced_call());
    }
  }
}

}  // namespace wait_impl

Checks wait_checks() {
  using namespace wait_impl;
  return {
      {"wait.timeout", "TIMEOUT is not sticky, and the work goes on", needs_streams | needs_pinned, timeout},
      {"wait.zero", "timeout 0 only asks", needs_streams, zero},
      {"wait.in_time", "a wait ends with the work, however long its limit", needs_streams, in_time},
  };
}

}  // namespace backplane::check
