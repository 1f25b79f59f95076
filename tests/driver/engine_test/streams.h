// tests/driver/engine_test/streams.h: cases of engine_test.cpp: order, events, waits, threads.
#pragma once

#include "support.h"

namespace {

void work_runs_in_order(Instance& i) {
  bp_stream* stream = i.stream();
  std::vector<int> seen;
  for (int n = 0; n < 2000; ++n) i.call(stream, [&seen, n](int32_t) { seen.push_back(n); });
  OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
  CHECK(seen.size() == 2000);
  for (int n = 0; n < 2000; ++n) CHECK(seen[static_cast<size_t>(n)] == n);
  OK(i.d->stream_query(i.self, 0, stream));
  OK(i.d->stream_destroy(i.self, 0, stream));
}

void a_stream_waits_for_another(Instance& i) {
  bp_stream *a = i.stream(), *b = i.stream();
  bp_event* event = i.event();
  std::atomic<int> steps{0};
  int seen = -1;
  {
    Gate gate(i, a);
    i.call(a, [&](int32_t) { steps = 1; });
    OK(i.d->event_record(i.self, 0, a, event, 0u));
    OK(i.d->stream_wait(i.self, 0, b, event));
    i.call(b, [&](int32_t) { seen = steps; });
    CHECK(i.d->stream_query(i.self, 0, b) == BP_PENDING);
    CHECK(i.d->event_query(i.self, 0, event) == BP_PENDING);
    CHECK(i.d->stream_synchronize(i.self, 0, b, 2 * kMs) == BP_TIMEOUT);
    CHECK(!i.error().empty());
    CHECK(i.d->event_synchronize(i.self, 0, event, 0) == BP_TIMEOUT);
    CHECK(i.d->synchronize(i.self, 0, kMs) == BP_TIMEOUT);
    CHECK(i.d->stream_query(i.self, 0, nullptr) == BP_OK);  // others go on
    gate.open();
    OK(i.d->stream_synchronize(i.self, 0, b, BP_NO_TIMEOUT));
    CHECK(seen == 1);
    OK(i.d->event_query(i.self, 0, event));
    OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  }
  OK(i.d->event_destroy(i.self, 0, event));
  OK(i.d->stream_destroy(i.self, 0, a));
  OK(i.d->stream_destroy(i.self, 0, b));
}

void a_second_record_replaces_the_first(Instance& i) {
  bp_stream *a = i.stream(), *b = i.stream(), *c = i.stream();
  bp_event* event = i.event();
  std::atomic<bool> ran{false};
  {
    Gate gate(i, a);
    OK(i.d->event_record(i.self, 0, a, event, 0u));
    OK(i.d->stream_wait(i.self, 0, b, event));
    i.call(b, [&](int32_t) { ran = true; });
    OK(i.d->event_record(i.self, 0, c, event, 0u));  // c is idle
    OK(i.d->event_synchronize(i.self, 0, event, BP_NO_TIMEOUT));
    CHECK(!ran && i.d->stream_query(i.self, 0, b) == BP_PENDING);
    OK(i.d->stream_wait(i.self, 0, c, event));
    OK(i.d->stream_synchronize(i.self, 0, c, BP_NO_TIMEOUT));
    OK(i.d->event_destroy(i.self, 0, event));  // b still waits for its first record
  }
  OK(i.d->stream_synchronize(i.self, 0, b, BP_NO_TIMEOUT));
  CHECK(ran);
}

void an_unrecorded_event_is_complete(Instance& i) {
  bp_event *timed = i.event(BP_EVENT_TIMING), *other = i.event(BP_EVENT_TIMING), *plain = i.event();
  int64_t ns = 77;
  OK(i.d->event_query(i.self, 0, timed));
  OK(i.d->event_synchronize(i.self, 0, timed, BP_NO_TIMEOUT));
  OK(i.d->stream_wait(i.self, 0, nullptr, timed));
  CHECK(i.d->event_elapsed(i.self, 0, timed, other, &ns) == BP_INVALID_ARGUMENT && ns == 77);
  OK(i.d->event_record(i.self, 0, nullptr, timed, 0u));
  OK(i.d->event_record(i.self, 0, nullptr, plain, 0u));
  CHECK(i.d->event_elapsed(i.self, 0, timed, plain, &ns) == BP_INVALID_ARGUMENT && ns == 77);
  bp_stream* stream = i.stream();
  {
    Gate gate(i, stream);
    OK(i.d->event_record(i.self, 0, stream, other, 0u));
    CHECK(i.d->event_elapsed(i.self, 0, timed, other, &ns) == BP_PENDING && ns == 77);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  OK(i.d->event_synchronize(i.self, 0, other, BP_NO_TIMEOUT));
  OK(i.d->event_elapsed(i.self, 0, timed, other, &ns));
  CHECK(ns >= 3000000);
  OK(i.d->event_elapsed(i.self, 0, other, timed, &ns));
  CHECK(ns <= -3000000);
}

void many_threads_wait_for_one_event(Instance& i) {
  bp_stream* stream = i.stream();
  for (uint32_t flags : {0u, BP_EVENT_BLOCKING}) {
    bp_event* event = i.event(flags);
    std::atomic<int> woken{0};
    std::vector<std::thread> threads;
    {
      Gate gate(i, stream);
      OK(i.d->event_record(i.self, 0, stream, event, 0u));
      for (int n = 0; n < 4; ++n) {
        threads.emplace_back([&, n] {
          if (n % 2) {
            if (i.d->event_synchronize(i.self, 0, event, BP_NO_TIMEOUT) == BP_OK) ++woken;
          } else if (i.d->stream_synchronize(i.self, 0, stream, 60000 * kMs) == BP_OK) {
            ++woken;
          }
        });
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      CHECK(woken == 0);
    }
    for (auto& thread : threads) thread.join();
    CHECK(woken == 4);
    OK(i.d->event_destroy(i.self, 0, event));
  }
}

void destroying_a_stream_completes_its_work(Instance& i) {
  bp_stream* stream = i.stream();
  std::atomic<int> ran{0};
  auto gate = std::make_unique<Gate>(i, stream);
  for (int n = 0; n < 100; ++n) i.call(stream, [&](int32_t) { ++ran; });
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    gate->open();
  });
  OK(i.d->stream_destroy(i.self, 0, stream));
  CHECK(ran == 100);
  opener.join();
}

void closing_completes_what_is_queued(Instance& i) {
  bp_stream *a = i.stream(), *b = i.stream();
  bp_event* event = i.event();
  std::atomic<int> ran{0};
  i.alloc(1000);
  for (int n = 0; n < 50; ++n) {
    i.call(a, [&](int32_t) { std::this_thread::sleep_for(std::chrono::microseconds(20)); });
    OK(i.d->event_record(i.self, 0, a, event, 0u));
    OK(i.d->stream_wait(i.self, 0, b, event));
    i.call(b, [&](int32_t) { ++ran; });
  }
  i.close();
  CHECK(ran == 50);
}

void threads_share_streams(Instance& i) {
  std::vector<bp_stream*> streams{nullptr, i.stream(), i.stream()};
  std::vector<uint64_t> counts(streams.size(), 0);  // each written by its stream's work alone
  uint64_t total = 0;                               // written by the last stream, behind the others' events
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      bp_event* event = i.event(BP_EVENT_TIMING);
      unsigned seed = t + 1;
      for (int n = 0; n < 400; ++n) {
        seed = seed * 1103515245 + 12345;
        const size_t at = seed / 65536 % streams.size();
        i.call(streams[at], [&counts, at](int32_t) { ++counts[at]; });
        if (n % 3 == 0) {
          OK(i.d->event_record(i.self, 0, streams[at], event, 0u));
          OK(i.d->stream_wait(i.self, 0, streams[2], event));
          i.call(streams[2], [&](int32_t) { ++total; });
        }
        if (n % 50 == 0) OK(i.d->stream_synchronize(i.self, 0, streams[at], BP_NO_TIMEOUT));
        if (n % 70 == 0) OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
        if (n % 20 == 0) OK(i.d->event_synchronize(i.self, 0, event, BP_NO_TIMEOUT));
      }
      OK(i.d->event_destroy(i.self, 0, event));
    });
  }
  for (auto& thread : threads) thread.join();
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  CHECK(std::accumulate(counts.begin(), counts.end(), uint64_t{0}) == 1600);
  CHECK(total == 4 * 134);
}

void a_native_stream_gives_its_handle_back(Instance& i) {
  CHECK(i.d->stream_from_native);
  bp_stream *stream = i.stream(), *found = nullptr;
  auto native = reinterpret_cast<uint64_t>(stream);
  if (i.d->stream_native) OK(i.d->stream_native(i.self, 0, stream, &native));
  OK(i.d->stream_from_native(i.self, 0, native, &found));
  CHECK(found == stream);
  if (i.d->stream_native) {
    uint64_t of_default = 0;
    OK(i.d->stream_native(i.self, 0, nullptr, &of_default));
    OK(i.d->stream_from_native(i.self, 0, of_default, &found));
    CHECK(found == nullptr);
  }
  CHECK(i.d->stream_from_native(i.self, 1, native, &found) == BP_INVALID_ARGUMENT &&
        i.error().find("no stream of device 1") != std::string::npos);
  OK(i.d->stream_destroy(i.self, 0, stream));
  CHECK(i.d->stream_from_native(i.self, 0, native, &found) == BP_INVALID_ARGUMENT);
  CHECK(i.d->stream_from_native(i.self, 0, 0x7770, &found) == BP_INVALID_ARGUMENT && i.error().find("0x7770") != std::string::npos);
}

void unknown_flags_are_refused(Instance& i) {
  constexpr uint32_t unknown = 1u << 30;
  const uint64_t a = i.alloc(64), b = i.alloc(64);
  const char pattern = 1;
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  CHECK(i.d->copy(i.self, 0, nullptr, a, 0, b, 0, 64, unknown) == BP_INVALID_ARGUMENT);
  CHECK(i.d->copy_async(i.self, 0, nullptr, a, 0, b, 0, 64, unknown) == BP_INVALID_ARGUMENT);
  CHECK(i.d->fill(i.self, 0, nullptr, a, &pattern, 1, 64, unknown) == BP_INVALID_ARGUMENT);
  CHECK(i.d->event_record(i.self, 0, nullptr, i.event(), unknown) == BP_INVALID_ARGUMENT);
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));  // nothing of it was queued
}

void the_stream_limit_is_kept(Instance& i) {
  bp_device_properties properties{};
  properties.struct_size = sizeof properties;
  OK(i.d->device_properties(i.self, 0, &properties));
  std::vector<bp_stream*> streams;
  for (int32_t n = 0; n < properties.stream_limit; ++n) streams.push_back(i.stream());
  bp_stream* more = nullptr;
  CHECK(i.d->stream_create(i.self, 0, 0, 0, &more) == BP_UNSUPPORTED && !more);
  OK(i.d->stream_destroy(i.self, 0, streams.back()));
  OK(i.d->stream_create(i.self, 0, properties.priority_greatest, 0, &more));
}

}  // namespace
