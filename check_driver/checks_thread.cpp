// check_driver/checks_thread.cpp: family "thread": entries called from several threads at once.
#include <string.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <thread>

#include "context.h"

namespace backplane::check {
namespace thread_impl {

// Runs body(i) on `count` threads; throws again what the first failing one threw.
void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (...) {
        failures[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// alloc, copies and free of many threads on all devices: each reads back its own bytes.
void memory(Context& c) {
  c.properties(0);  // asked once, before the threads
  on_threads(4, [&](int i) {
    const int32_t d = i % c.devices();
    const uint64_t bytes = c.some_bytes(d);
    HostBuffer sent(bytes);
    for (uint32_t round = 0; round < 60; ++round) {
      sent.fill_pattern(round * 8 + static_cast<uint32_t>(i));
      const uint64_t a = c.alloc(d, bytes), b = c.alloc(d, bytes);
      c.upload(d, a, sent.data(), bytes);
      c.expect(CALL(c, copy, d, nullptr, b, d, a, d, bytes, 0u), BP_OK, rules::threads);
      c.holds(d, b, sent.data(), bytes, rules::threads, "bytes read back while other threads worked");
      c.free(d, a);
      c.free(d, b);
    }
  });
}

// A stream and an event of its own on each thread, all at once.
void streams(Context& c) {
  c.properties(0);
  const int32_t limit = c.properties(0).stream_limit;
  on_threads(limit ? std::min(limit, 4) : 4, [&](int i) {
    const int32_t d = i % c.devices();
    const uint64_t bytes = c.some_bytes(d);
    uint8_t *sent = c.pinned(bytes), *back = c.pinned(bytes);
    const uint64_t a = c.alloc(d, bytes);
    HostBuffer want(bytes);
    for (uint32_t round = 0; round < 30; ++round) {
      bp_stream* stream = c.stream(d);
      bp_event* event = c.event(d);
      want.fill_pattern(round * 8 + static_cast<uint32_t>(i));
      memcpy(sent, want.data(), bytes);
      c.expect(CALL(c, copy_async, d, stream, a, d, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::threads);
      c.expect(CALL(c, copy_async, d, stream, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, a, d, bytes, 0u), BP_OK, rules::threads);
      c.expect(CALL(c, event_record, d, stream, event, 0u), BP_OK, rules::threads);
      c.expect(CALL(c, event_synchronize, d, event, BP_NO_TIMEOUT), BP_OK, rules::threads);
      c.same(back, want.data(), bytes, rules::threads, "bytes read back while other threads worked");
      c.expect(CALL(c, event_destroy, d, event), BP_OK, rules::threads);
      c.expect(CALL(c, stream_destroy, d, stream), BP_OK, rules::threads);
    }
  });
}

// Several threads feed one stream: nothing is lost.
void one_stream(Context& c) {
  const uint64_t bytes = std::max<uint64_t>(c.unit(0), 512);
  bp_stream* stream = c.stream(0);
  constexpr int threads = 4, rounds = 100;
  struct Lane {
    uint8_t* pinned;
    uint64_t address;
  };
  std::vector<Lane> lanes;
  for (int i = 0; i < threads; ++i) lanes.push_back({c.pinned(bytes * rounds), c.alloc(0, bytes * rounds)});
  on_threads(threads, [&](int i) {
    const Lane& lane = lanes[static_cast<size_t>(i)];
    memset(lane.pinned, i + 1, bytes * rounds);
    for (uint64_t r = 0; r < rounds; ++r) {
      c.expect(CALL(c, copy_async, 0, stream, lane.address + r * bytes, 0, reinterpret_cast<uint64_t>(lane.pinned + r * bytes),
                    BP_HOST_DEVICE, bytes, 0u),
               BP_OK, rules::threads);
    }
  });
  c.synchronize(0, stream);
  for (const Lane& lane : lanes) {
    c.holds(0, lane.address, lane.pinned, bytes * rounds, rules::threads, "what several threads copied on one stream");
  }
}

// What one thread made, another one uses and gives back.
void handover(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* stream = nullptr;
  bp_event* event = nullptr;
  uint8_t* host = nullptr;
  uint64_t a = 0;
  on_threads(1, [&](int) {
    stream = c.stream(0);
    event = c.event(0);
    host = c.pinned(bytes, 4);
    a = c.alloc(0, bytes);
    c.expect(CALL(c, copy_async, 0, stream, a, 0, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::threads);
    c.expect(CALL(c, event_record, 0, stream, event, 0u), BP_OK, rules::threads);
  });
  on_threads(1, [&](int) {
    c.expect(CALL(c, event_synchronize, 0, event, BP_NO_TIMEOUT), BP_OK, rules::threads);
    c.holds(0, a, host, bytes, rules::threads, "memory that another thread wrote", stream);
    c.expect(CALL(c, free, 0, a), BP_OK, rules::threads);
    c.expect(CALL(c, event_destroy, 0, event), BP_OK, rules::threads);
    c.expect(CALL(c, stream_destroy, 0, stream), BP_OK, rules::threads);
    c.expect(CALL(c, host_free, host), BP_OK, rules::threads);
  });
}

}  // namespace thread_impl

Checks thread_checks() {
  using namespace thread_impl;
  return {
      {"thread.memory", "alloc, copy and free from several threads", needs_threads, memory},
      {"thread.streams", "a stream for each of several threads", needs_threads | needs_streams | needs_events | needs_pinned, streams},
      {"thread.one_stream", "several threads feed one stream", needs_threads | needs_streams | needs_pinned, one_stream},
      {"thread.handover", "one thread makes, another one gives back", needs_streams | needs_events | needs_pinned, handover},
  };
}

}  // namespace backplane::check
