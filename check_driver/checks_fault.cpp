// check_driver/checks_fault.cpp: family "fault": a piece of queued work fails, and the device stays failed.
//
// The work is a host function; of a driver without them, a fill that the fault shim over it lets fail. Checked then is that the caller gets
// the error, that the driver takes back what it gave, and that its other devices go on.
#include <optional>

#include "belongings.h"

namespace backplane::check {
namespace fault_impl {

constexpr char sticky_rule[] = "BP_FAULT: sticky: device work failed; it comes back from alloc, launches, waits and queries of that device";
constexpr char fn_rule[] = "fn returns a bp_status; anything but BP_OK makes the device FAULT";

int32_t failing(void*) { return BP_INTERNAL; }

// What fails on device 0, made ready before its stream is kept busy.
class Breaker {
 public:
  explicit Breaker(Context& c) : c_(c) {
    if (c.under_fault()) block_ = c.alloc(0, 4096);
  }

  // An inline stream may report it at once.
  void queue(bp_stream* stream) const {
    if (!c_.under_fault()) {
      const bp_host_exec exec = *c_.group<bp_host_exec>();
      c_.expect_one_of(CALL_GROUP(exec, enqueue, 0, stream, failing, nullptr, nullptr), {BP_OK, BP_FAULT}, rule());
      return;
    }
    const uint8_t pattern = 0;
    c_.fail_next_work();
    c_.expect_one_of(CALL(c_, fill, 0, stream, block_, &pattern, 1u, 4096u, 0u), {BP_OK, BP_FAULT}, rule());
  }

  void break_device(bp_stream* stream) const {
    queue(stream);
    c_.expect(CALL(c_, synchronize, 0, BP_NO_TIMEOUT), BP_FAULT, rule());
  }

  const char* rule() const { return c_.under_fault() ? sticky_rule : fn_rule; }

 private:
  Context& c_;
  uint64_t block_ = 0;
};

void sticky(Context& c) {
  const Belongings own(c);
  Breaker(c).break_device(nullptr);
  c.require(!c.last_error().empty(), rules::errors, "synchronize gave BP_FAULT and last_error gives an empty text");
  for (int again = 0; again < 2; ++again) own.refused(nullptr, BP_FAULT, sticky_rule);
}

// The fault is the device's, not the stream's.
void other_streams(Context& c) {
  bp_stream *broken = c.stream(0), *other = c.stream(0);
  Breaker(c).break_device(broken);
  for (bp_stream* s : {broken, other, static_cast<bp_stream*>(nullptr)}) {
    c.expect(CALL(c, stream_query, 0, s), BP_FAULT, sticky_rule);
    c.expect(CALL(c, stream_synchronize, 0, s, BP_NO_TIMEOUT), BP_FAULT, sticky_rule);
  }
}

void events(Context& c) {
  bp_stream* stream = c.stream(0);
  bp_event* event = c.event(0);
  const Breaker breaker(c);
  BusyStream hold(c, 0, stream);
  breaker.queue(stream);
  const int32_t recorded = CALL(c, event_record, 0, stream, event, 0u);
  // Without callbacks the fault shim lets the device fail at once, before the record.
  const bool at_once = c.under_fault() && !c.table().stream_callback;
  if (!at_once || recorded != BP_FAULT) {
    c.expect(recorded, BP_OK, "The event completes when all work queued so far on the stream has");
  }
  hold.release();
  if (recorded == BP_FAULT) return c.expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT), BP_FAULT, sticky_rule);
  c.expect(CALL(c, event_synchronize, 0, event, BP_NO_TIMEOUT), BP_FAULT, "Waits for the latest record. errors: TIMEOUT, sticky ones");
  c.expect(CALL(c, event_query, 0, event), BP_FAULT, "BP_OK: complete; BP_PENDING; or a sticky error");
}

void release(Context& c) {
  const char* rule = "Works after a FAULT";
  const Belongings own(c);
  const uint64_t zero = c.alloc(0, 0);
  bp_stream* other = own.stream ? c.stream(0) : nullptr;
  Breaker(c).break_device(own.stream);
  own.give_back(rule);
  c.expect(CALL(c, free, 0, zero), BP_OK, rule);
  if (other) c.expect(CALL(c, stream_destroy, 0, other), BP_OK, rule);
  c.close();
}

void isolated(Context& c) {
  const char* rule = "FAULT and DEVICE_LOST are sticky for that device";
  Breaker(c).break_device(nullptr);
  c.smoke(1, rule);
  if (c.table().stream_create) {
    bp_stream* stream = nullptr;
    c.expect(CALL(c, stream_create, 1, 0, 0u, &stream), BP_OK, rule);
    c.expect(CALL(c, stream_synchronize, 1, stream, BP_NO_TIMEOUT), BP_OK, rule);
  }
  c.expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT), BP_FAULT, rule);
}

void callbacks(Context& c) {
  const char* rule = "Runs exactly once when the stream reaches it, on any thread, also after a fault (`status` is then the fault's)";
  bp_stream* stream = c.stream(0);
  Calls queued, late;
  const Breaker breaker(c);
  std::optional<BusyStream> hold;
  hold_if_possible(hold, c, stream);  // so that the fault meets work that is already queued
  breaker.queue(stream);
  const auto add = [&](Calls& count) {
    const int32_t status = CALL(c, stream_callback, 0, stream, Calls::callback, &count);
    c.expect_one_of(status, {BP_OK, BP_FAULT}, rule);
    return status == BP_OK ? 1 : 0;
  };
  const int queued_runs = add(queued);
  const bool held = hold && hold->held();
  if (held) c.require(queued_runs == 1, rule, "stream_callback failed before the stream had come to the fault");
  hold.reset();
  c.expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT), BP_FAULT, breaker.rule());
  const int late_runs = add(late);
  c.close();  // the last time for a callback to run
  const auto check = [&](const Calls& count, int runs, const char* what) {
    c.require(count.ran == runs, rule, "a callback queued %s the fault ran %d times, expected %d", what, count.ran.load(), runs);
    c.require(!runs || (count.status != BP_OK && count.status != BP_PENDING), rule,
              "a callback queued %s the fault got status %s, expected BP_FAULT", what, status_text(count.status).c_str());
  };
  check(queued, queued_runs, held ? "before" : "at");
  check(late, late_runs, "after");
}

void skipped(Context& c) {
  const char* rule = "fn is device work: it is skipped after a fault; destroy(arg) runs exactly once";
  const bp_host_exec exec = *c.group<bp_host_exec>();
  bp_stream* stream = c.table().stream_create ? c.stream(0) : nullptr;
  std::vector<Calls> counts(20);
  std::optional<BusyStream> hold;
  hold_if_possible(hold, c, stream);
  Breaker(c).queue(stream);
  for (Calls& count : counts) {
    c.expect_one_of(CALL_GROUP(exec, enqueue, 0, stream, Calls::run, &count, Calls::destroy), {BP_OK, BP_FAULT}, rule);
  }
  hold.reset();
  c.expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT), BP_FAULT, fn_rule);
  Calls late;
  c.expect(CALL_GROUP(exec, enqueue, 0, stream, Calls::run, &late, Calls::destroy), BP_FAULT, sticky_rule);
  c.close();  // the last time for a destroy to run
  for (const Calls& count : counts) {
    c.require(count.ran == 0, rule, "a function queued behind the fault ran %d times", count.ran.load());
    c.require(count.destroyed == 1, rule, "destroy ran %d times for a function queued behind the fault", count.destroyed.load());
  }
  c.require(late.ran == 0 && late.destroyed == 1, "destroy(arg) runs exactly once, also if enqueue itself fails",
            "enqueue after the fault: fn ran %d times, destroy %d times", late.ran.load(), late.destroyed.load());
}

}  // namespace fault_impl

Checks fault_checks() {
  using namespace fault_impl;
  return {
      {"fault.sticky", "every launch, wait and query reports it", breaks_device, sticky},
      {"fault.streams", "on every stream of the device", breaks_device | needs_streams, other_streams},
      {"fault.events", "a record behind it reports it", breaks_device | needs_streams | needs_events, events},
      {"fault.release", "free, destroy and close still work", breaks_device, release},
      {"fault.isolated", "another device is not affected", breaks_device | needs_two_devices, isolated},
      {"fault.callbacks", "callbacks run once, and get its status", breaks_device | needs_streams | needs_stream_callback, callbacks},
      {"fault.skipped", "queued functions are skipped, and destroyed", needs_host_exec, skipped},
  };
}

}  // namespace backplane::check
