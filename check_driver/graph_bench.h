// check_driver/graph_bench.h: what all checks of bp.graph do: a stream, memory to write, captures and runs.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace graph_impl {

// A stream of device 0 with pinned memory `sent` and two places of zeros on the device.
struct Bench {
  explicit Bench(Context& context)
      : c(context),
        graph(*context.group<bp_graph>()),
        stream(context.stream(0)),
        bytes(context.some_bytes(0)),
        place(context.alloc(0, bytes)),
        other(context.alloc(0, bytes)),
        sent(context.pinned(bytes)) {
    const HostBuffer zero(bytes);
    c.upload(0, place, const_cast<HostBuffer&>(zero).data(), bytes);
    c.upload(0, other, const_cast<HostBuffer&>(zero).data(), bytes);
    set_sent(7);
  }

  uint64_t begin(int32_t mode = BP_CAPTURE_GLOBAL) const {
    uint64_t id = 0;
    c.expect(CALL_GROUP(graph, capture_begin, 0, stream, mode, &id), BP_OK, "What is queued on the stream from now on is recorded");
    return id;
  }
  bp_recording* end() const {
    bp_recording* recording = nullptr;
    c.expect(CALL_GROUP(graph, capture_end, 0, stream, &recording), BP_OK, "capture_end gives the recording");
    c.require(recording != nullptr, "capture_end gives the recording", "capture_end gave BP_OK and no recording");
    return recording;
  }
  // Of an invalid capture. `named`: what the error's text must say.
  void refused_end(const char* rule, const char* named = nullptr) const {
    auto* const untouched = reinterpret_cast<bp_recording*>(0x77);
    bp_recording* recording = untouched;
    c.expect(CALL_GROUP(graph, capture_end, 0, stream, &recording), BP_INVALID_ARGUMENT, rule);
    c.require(recording == untouched, rules::errors, "capture_end failed and yet set *out");
    if (named) {
      const std::string text = c.last_error();
      c.require(text.find(named) != std::string::npos, "capture_end names the first illegal call",
                "its text is \"%s\", which does not say %s", text.c_str(), named);
    }
    status_is(stream, BP_CAPTURE_NONE, 0, rule);
  }
  bp_graph_exec* instantiate(bp_recording* recording) const {
    bp_graph_exec* exec = nullptr;
    c.expect(CALL_GROUP(graph, instantiate, 0, recording, 0u, &exec), BP_OK, "Makes what launch runs");
    c.require(exec != nullptr, "Makes what launch runs", "instantiate gave BP_OK and nothing to run");
    return exec;
  }
  void launch(bp_graph_exec* exec) const {
    c.expect(CALL_GROUP(graph, launch, 0, stream, exec), BP_OK, "Queues one run after the stream's work");
  }

  void set_sent(uint32_t seed) const {
    HostBuffer row(bytes);
    row.fill_pattern(seed);
    memcpy(sent, row.data(), bytes);
  }
  // Queues the copy of `sent` to `place`.
  void push(bp_stream* on) const {
    c.expect(CALL(c, copy_async, 0, on, place, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::copy_async);
  }
  void arrived(const char* rule, const char* what) const {
    c.holds(0, place, sent, bytes, rule, (std::string("the copy ") + what).c_str());
  }
  void unchanged(const char* rule, const char* by) const {
    HostBuffer zero(bytes);
    c.holds(0, place, zero.data(), bytes, rule, (std::string("memory after ") + by + ", which runs nothing,").c_str());
  }
  // The stream runs work, and is waited for.
  void usable(bp_stream* on, const char* rule) const {
    set_sent(1234);
    push(on);
    c.synchronize(0, on);
    arrived(rule, "on a stream after its capture");
  }

  int32_t status_of(bp_stream* of, uint64_t* id = nullptr) const {
    int32_t out = 77;
    uint64_t number = 0;
    c.expect(CALL_GROUP(graph, capture_status, 0, of, &out, &number), BP_OK, "capture_status never blocks, any thread");
    if (id) *id = number;
    return out;
  }
  void status_is(bp_stream* of, int32_t want, uint64_t want_id, const char* rule) const {
    uint64_t id = 77;
    const int32_t out = status_of(of, &id);
    c.require(out == want && id == want_id, rule, "capture_status says %d and the id %llu, expected %d and %llu", out, wide(id), want,
              wide(want_id));
  }

  Context& c;
  const bp_graph graph;
  bp_stream* const stream;
  const uint64_t bytes, place, other;
  uint8_t* const sent;
};

}  // namespace graph_impl
}  // namespace backplane::check
