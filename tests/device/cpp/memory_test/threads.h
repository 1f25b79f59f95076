// tests/device/cpp/memory_test/threads.h: cases of memory_test.cpp: threads, and a forked child.
#pragma once

#include "cases.h"

namespace {

// Four threads whose live memory always fits under a tight limit: nobody runs out, though each must take what the others cached, and the
// driver takes its time to free.
CASE(threads_under_pressure) {
  auto* mine = new WatchingAllocator();
  mine->on_free = [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
  c10::SetAllocator(kDevice, mine, 1);
  const size_t total = caching().getMemoryInfo(0).second;
  caching().set_memory_fraction(56.0 * kMiB / static_cast<double>(total), 0);
  std::atomic<int> refused{0};
  const auto body = [&](unsigned seed) {
    const OnStream on(pool_stream(0));
    for (int i = 0; i < 200; ++i) {
      seed = seed * 1664525u + 1013904223u;
      try {
        const auto block = allocator().allocate((10 + (seed >> 16) % 4) * kMiB);
        std::this_thread::yield();
      } catch (const c10::OutOfMemoryError&) {
        ++refused;
      }
    }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < 4; ++i) workers.emplace_back(body, i);
  for (auto& worker : workers) worker.join();
  EXPECT_EQUAL(refused.load(), 0);
  EXPECT(Stats().all.num_alloc_retries > 0);
  EXPECT(Stats().all.reserved_bytes[0].peak <= static_cast<int64_t>(56 * kMiB));
}

CASE(forked_child_frees_nothing) {
  auto a = allocator().allocate(1000);
  auto pinned = pinned_allocator().allocate(1000);
  const pid_t child = fork();
  if (child == 0) {
    a.clear();
    pinned.clear();
    const bool refused = contains(error_of([] { allocator().allocate(1000); }), "forked") &&
                         contains(error_of([] { pinned_allocator().allocate(1000); }), "forked");
    caching().emptyCache();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQUAL(status, 0);
  EXPECT_EQUAL(Stats().allocated(), 1024);
}

}  // namespace
