// tests/driver/engine_test/streams.h: cases of engine_test.cpp: order, events, waits, threads.
#pragma once

#include "support.h"

namespace {

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

}  // namespace
