// tests/device/cpp/memory_test/threads.h: cases of memory_test.cpp: threads, and a forked child.
#pragma once

#include "cases.h"

namespace {

// Blocks of live allocations never overlap, whichever threads allocate and free; at the end everything is accounted for.
CASE(threads) {
  struct Shared {
    std::mutex mutex;
    std::map<uintptr_t, size_t> live;
    std::vector<c10::DataPtr> passed;  // freed by another thread than the one that allocated
  } shared;
  std::atomic<bool> overlap{false};
  const auto body = [&](unsigned seed) {
    const OnStream on(seed % 2 == 0 ? default_stream(0) : pool_stream(0));
    const c10::Stream foreign = pool_stream(0);
    std::vector<c10::DataPtr> mine;
    for (int i = 0; i < 4000; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const size_t bytes = seed % 16 == 0 ? (seed >> 8) % (8 * kMiB) + 1 : (seed >> 8) % 20000 + 1;
      auto block = allocator().allocate(bytes);
      const auto begin = reinterpret_cast<uintptr_t>(block.get());
      {
        const std::lock_guard<std::mutex> lock(shared.mutex);
        const auto next = shared.live.lower_bound(begin);
        if (next != shared.live.end() && next->first < begin + bytes) overlap = true;
        if (next != shared.live.begin() && std::prev(next)->first + std::prev(next)->second > begin) overlap = true;
        shared.live[begin] = bytes;
      }
      if (seed % 5 == 0) caching().recordStream(block, foreign);
      mine.push_back(std::move(block));
      std::vector<c10::DataPtr> doomed;
      {
        const std::lock_guard<std::mutex> lock(shared.mutex);
        if (mine.size() > 20) {
          std::swap(mine[seed % mine.size()], mine.back());
          shared.passed.push_back(std::move(mine.back()));
          mine.pop_back();
        }
        if (shared.passed.size() > 8) doomed.swap(shared.passed);
        for (const auto& ptr : doomed) shared.live.erase(reinterpret_cast<uintptr_t>(ptr.get()));
      }
      if (seed % 1001 == 0) caching().emptyCache();
      if (seed % 333 == 0) caching().snapshot();
    }
    const std::lock_guard<std::mutex> lock(shared.mutex);
    for (const auto& ptr : mine) shared.live.erase(reinterpret_cast<uintptr_t>(ptr.get()));
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < 4; ++i) workers.emplace_back(body, i);
  for (auto& worker : workers) worker.join();
  EXPECT(!overlap);
  shared.passed.clear();
  synchronize_device(0);
  Stats stats;
  EXPECT_EQUAL(stats.allocated(), 0);
  EXPECT_EQUAL(stats.active(), 0);
  EXPECT_EQUAL(stats.all.requested_bytes[0].current, 0);
  EXPECT_EQUAL(stats.all.inactive_split_bytes[0].current, 0);
  caching().emptyCache();
  stats = Stats();
  EXPECT_EQUAL(stats.reserved(), 0);
  EXPECT_EQUAL(stats.all.num_device_alloc, stats.all.num_device_free);
}

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
