// check_driver/checks_graph_rules.cpp: of the family "graph", what is illegal while a stream captures, and what is legal.
#include <functional>
#include <vector>

#include "graph_bench.h"

namespace backplane::check {
namespace graph_impl {

void arguments_of(Context& c) {
  Bench b(c);
  uint64_t id = 77;
  const char* rule = "errors: UNSUPPORTED for the default stream; INVALID_ARGUMENT: the stream captures already, or no such mode";
  c.expect(CALL_GROUP(b.graph, capture_begin, 0, nullptr, BP_CAPTURE_GLOBAL, &id), BP_UNSUPPORTED, rule);
  for (const int32_t mode : {0, 4, -1}) c.expect(CALL_GROUP(b.graph, capture_begin, 0, b.stream, mode, &id), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL_GROUP(b.graph, capture_begin, c.devices(), nullptr, BP_CAPTURE_GLOBAL, &id), BP_INVALID_DEVICE, rules::no_such_device);
  c.require(id == 77, rules::errors, "capture_begin failed and yet set *id");
  bp_recording* recording = nullptr;
  c.expect(CALL_GROUP(b.graph, capture_end, 0, b.stream, &recording), BP_INVALID_ARGUMENT, "the stream did not begin a capture");

  b.begin();
  c.expect(CALL_GROUP(b.graph, capture_begin, 0, b.stream, BP_CAPTURE_GLOBAL, &id), BP_INVALID_ARGUMENT, rule);
  bp_stream* side = c.stream(0);
  bp_event *fork = c.event(0), *join = c.event(0);
  c.expect(CALL(c, event_record, 0, b.stream, fork, 0u), BP_OK, rule);
  c.expect(CALL(c, stream_wait, 0, side, fork), BP_OK, rule);
  c.expect(CALL_GROUP(b.graph, capture_end, 0, side, &recording), BP_INVALID_ARGUMENT, "the stream did not begin a capture (nothing ends)");
  c.expect(CALL(c, event_record, 0, side, join, 0u), BP_OK, rule);
  c.expect(CALL(c, stream_wait, 0, b.stream, join), BP_OK, rule);
  recording = b.end();

  bp_graph_exec* exec = nullptr;
  c.expect(CALL_GROUP(b.graph, instantiate, 0, recording, 1u << 31, &exec), BP_INVALID_ARGUMENT, rules::flags);
  c.require(exec == nullptr, rules::errors, "instantiate failed and yet set *out");
  const char* empty = "An empty recording is a run, too";
  b.launch(b.instantiate(recording));
  c.synchronize(0, b.stream);
  b.usable(b.stream, empty);
}

// Each illegal call, alone, makes its capture invalid; capture_end says which, and the stream works afterwards.
void illegal(Context& c) {
  const char* rule = "While a stream captures: such a call does nothing and returns INVALID_ARGUMENT; that capture is invalid from then on";
  Bench b(c);
  HostBuffer host(b.bytes);
  b.begin();
  bp_graph_exec* exec = b.instantiate(b.end());
  struct Call {
    const char* name;
    std::function<int32_t()> make;
  };
  std::vector<Call> calls = {
      {"copy", [&] { return CALL(c, copy, 0, b.stream, host.address(), BP_HOST_DEVICE, b.place, 0, b.bytes, 0u); }},
      {"stream_query", [&] { return CALL(c, stream_query, 0, b.stream); }},
      {"stream_synchronize", [&] { return CALL(c, stream_synchronize, 0, b.stream, BP_NO_TIMEOUT); }},
      {"synchronize", [&] { return CALL(c, synchronize, 0, BP_NO_TIMEOUT); }},
      {"launch", [&] { return CALL_GROUP(b.graph, launch, 0, b.stream, exec); }},
  };
  if (c.table().stream_callback) {
    calls.push_back({"stream_callback", [&] { return CALL(c, stream_callback, 0, b.stream, [](void*, int32_t) {}, nullptr); }});
  }
  for (const Call& call : calls) {
    const uint64_t id = b.begin(BP_CAPTURE_RELAXED);
    b.push(b.stream);
    c.expect(call.make(), BP_INVALID_ARGUMENT, rule);
    b.status_is(b.stream, BP_CAPTURE_INVALID, id, rule);
    b.push(b.stream);  // taken and forgotten
    c.expect_one_of(CALL(c, stream_query, 0, c.stream(0)), {BP_OK}, "queries of what no capture concerns");
    b.refused_end(rule, call.name);
    b.unchanged("Queued work of an invalid capture is taken and forgotten", "an invalid capture");
  }
  b.usable(b.stream, "all streams work as before");
  const uint64_t id = b.begin();
  b.status_is(b.stream, BP_CAPTURE_ACTIVE, id, rule);
  b.end();
}

void events(Context& c) {
  const char* rule = "anything but event_record, event_destroy and stream_wait with an event whose latest record is a point of a recording";
  const char* outside = "stream_wait for an event whose latest record is no point of the same recording, save one that was never recorded";
  Bench b(c);
  bp_event *inside = c.event(0), *before = c.event(0), *fresh = c.event(0);
  c.expect(CALL(c, event_record, 0, b.stream, before, 0u), BP_OK, outside);
  c.synchronize(0, b.stream);

  b.begin(BP_CAPTURE_RELAXED);
  c.expect(CALL(c, stream_wait, 0, b.stream, fresh), BP_OK, outside);
  c.expect(CALL(c, event_query, 0, before), BP_OK, "queries of what no capture concerns");
  c.expect(CALL(c, event_record, 0, b.stream, inside, 0u), BP_OK, rule);
  c.expect(CALL(c, stream_wait, 0, b.stream, inside), BP_OK, rule);
  b.end();
  for (const bool asks : {true, false}) {
    b.begin(BP_CAPTURE_RELAXED);
    c.expect(CALL(c, event_record, 0, b.stream, inside, 0u), BP_OK, rule);
    c.expect(asks ? CALL(c, event_query, 0, inside) : CALL(c, event_synchronize, 0, inside, BP_NO_TIMEOUT), BP_INVALID_ARGUMENT, rule);
    b.refused_end(rule, asks ? "event_query" : "event_synchronize");
  }
  b.begin(BP_CAPTURE_RELAXED);
  c.expect(CALL(c, stream_wait, 0, b.stream, before), BP_INVALID_ARGUMENT, outside);
  b.refused_end(outside, "stream_wait");

  // The capture has ended; the event still stands at its point.
  c.expect(CALL(c, event_query, 0, inside), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL(c, stream_wait, 0, b.stream, inside), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL(c, event_record, 0, b.stream, inside, 0u), BP_OK, rule);
  c.expect(CALL(c, event_synchronize, 0, inside, BP_NO_TIMEOUT), BP_OK, rule);
  b.begin();
  c.expect(CALL(c, event_record, 0, b.stream, inside, 0u), BP_OK, rule);
  c.expect(CALL(c, event_destroy, 0, inside), BP_OK, rule);
  b.end();
}

void modes(Context& c) {
  const char* rule =
      "mode: GLOBAL: the same holds for a call of any thread that waits for other work; THREAD: of the thread that began the "
      "capture; RELAXED: of none";
  Bench b(c);
  bp_stream* other = c.stream(0);
  for (const int32_t mode : {BP_CAPTURE_GLOBAL, BP_CAPTURE_THREAD, BP_CAPTURE_RELAXED}) {
    for (const bool own_thread : {true, false}) {
      const uint64_t id = b.begin(mode);
      const bool spoils = mode == BP_CAPTURE_GLOBAL || (mode == BP_CAPTURE_THREAD && own_thread);
      int32_t status = 77;
      const auto wait = [&] { status = CALL(c, stream_synchronize, 0, other, BP_NO_TIMEOUT); };
      if (own_thread) {
        wait();
      } else {
        std::thread(wait).join();
      }
      c.require(status == (spoils ? BP_INVALID_ARGUMENT : BP_OK), rule,
                "in mode %d stream_synchronize of another stream on %s thread gave %s", mode, own_thread ? "the same" : "another",
                status_text(status).c_str());
      b.status_is(b.stream, spoils ? BP_CAPTURE_INVALID : BP_CAPTURE_ACTIVE, id, rule);
      if (spoils) {
        b.refused_end(rule);
      } else {
        b.end();
      }
    }
  }
}

void legal(Context& c) {
  const char* rule =
      "legal: alloc, free, host_alloc, host_free, streams and events that are made or destroyed, queries of what no capture "
      "concerns, work on other streams";
  Bench b(c);
  bp_stream* other = c.stream(0);
  bp_event* marker = c.event(0);
  uint8_t* back = c.pinned(b.bytes);
  const uint64_t id = b.begin(BP_CAPTURE_GLOBAL);
  c.free(0, c.alloc(0, b.bytes));
  void* pinned = nullptr;
  c.expect(CALL(c, host_alloc, b.bytes, 0u, &pinned), BP_OK, rule);
  c.expect(CALL(c, host_free, pinned), BP_OK, rule);
  c.expect(CALL(c, stream_destroy, 0, c.stream(0)), BP_OK, rule);
  c.expect(CALL(c, event_destroy, 0, c.event(0)), BP_OK, rule);
  c.expect(CALL(c, copy_async, 0, other, b.other, 0, reinterpret_cast<uint64_t>(b.sent), BP_HOST_DEVICE, b.bytes, 0u), BP_OK, rule);
  c.expect(CALL(c, copy_async, 0, other, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, b.other, 0, b.bytes, 0u), BP_OK, rule);
  c.expect(CALL(c, event_record, 0, other, marker, 0u), BP_OK, rule);
  for (int i = 0; i < 5000 && CALL(c, event_query, 0, marker) == BP_PENDING; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  c.expect(CALL(c, event_query, 0, marker), BP_OK, rule);
  c.expect(CALL(c, stream_query, 0, other), BP_OK, rule);
  c.same(back, b.sent, b.bytes, rule, "work of another stream while one captures");
  b.status_is(b.stream, BP_CAPTURE_ACTIVE, id, rule);
  b.push(b.stream);
  b.launch(b.instantiate(b.end()));
  c.synchronize(0, b.stream);
  b.arrived(rule, "of a run after all that");
}

void destroyed(Context& c) {
  const char* rule =
      "The recording, or the exec, is gone for the caller; each lives without the other. Runs that are queued still complete";
  Bench b(c);
  b.begin();
  b.push(b.stream);
  bp_recording* recording = b.end();
  bp_graph_exec *first = b.instantiate(recording), *second = b.instantiate(recording);
  c.expect(CALL_GROUP(b.graph, recording_destroy, 0, recording), BP_OK, rule);
  b.launch(first);
  c.expect(CALL_GROUP(b.graph, exec_destroy, 0, first), BP_OK, rule);
  c.synchronize(0, b.stream);
  b.arrived(rule, "of a run whose exec was destroyed behind it");
  b.set_sent(8);
  b.launch(second);
  c.synchronize(0, b.stream);
  b.arrived(rule, "of another exec of the same recording");
  c.expect(CALL_GROUP(b.graph, exec_destroy, 0, second), BP_OK, rule);

  // A stream ends while it captures: nothing stays behind.
  bp_stream* lost = c.stream(0);
  c.expect(CALL_GROUP(b.graph, capture_begin, 0, lost, BP_CAPTURE_RELAXED, nullptr), BP_OK, rule);
  c.expect(CALL(c, stream_destroy, 0, lost), BP_OK, "stream_destroy alone does what it always does");
  c.synchronize(0);
}

}  // namespace graph_impl
}  // namespace backplane::check
