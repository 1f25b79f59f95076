// tests/device/cpp/memory_test/caching.h: cases of memory_test.cpp: how freed memory is used again, and by whom.
#pragma once

#include "cases.h"

namespace {

// The simulated device reaches a peer's memory only after access was switched on.
CASE(two_devices_copies_switch_peer_access_on) {
  const bp_host_exec* exec = open_driver().host_exec;
  const bp_peer* peer = open_driver().peer;
  EXPECT(exec != nullptr && peer != nullptr);
  const auto source = allocator().allocate(kMiB);
  const auto reach = [&](c10::DeviceIndex device) {
    void* out = nullptr;
    return exec->map(exec->head.self, driver_index(device), reinterpret_cast<uint64_t>(source.get()), &out) == BP_OK;
  };
  EXPECT(reach(0) && !reach(1));
  exchange_device(1);
  const auto target = allocator().allocate(kMiB);
  allocator().copy_data(target.get(), source.get(), kMiB);
  synchronize_device(1);
  EXPECT(reach(1));
  EXPECT(enable_peer_access(1, 0) && !enable_peer_access(1, 1));
}

CASE(statistics_are_exact) {
  auto a = allocator().allocate(1000);
  auto b = allocator().allocate(3 * kMiB);
  Stats stats;
  EXPECT_EQUAL(stats.all.allocation[0].current, 2);
  EXPECT_EQUAL(stats.all.allocation[1].current, 1);
  EXPECT_EQUAL(stats.all.allocation[2].current, 1);
  EXPECT_EQUAL(stats.all.allocated_bytes[1].current, 1024);
  EXPECT_EQUAL(stats.all.allocated_bytes[2].current, 3 * kMiB);
  EXPECT_EQUAL(stats.all.requested_bytes[0].current, 1000 + 3 * kMiB);
  EXPECT_EQUAL(stats.all.segment[0].current, 2);
  EXPECT_EQUAL(stats.reserved(), 22 * kMiB);
  EXPECT_EQUAL(stats.all.inactive_split[0].current, 2);
  EXPECT_EQUAL(stats.all.inactive_split_bytes[0].current, 22 * kMiB - 1024 - 3 * kMiB);
  a.clear();
  b.clear();
  stats = Stats();
  EXPECT_EQUAL(stats.allocated(), 0);
  EXPECT_EQUAL(stats.active(), 0);
  EXPECT_EQUAL(stats.all.inactive_split[0].current, 0);
  EXPECT_EQUAL(stats.all.inactive_split_bytes[0].current, 0);
  EXPECT_EQUAL(stats.all.allocated_bytes[0].peak, 1024 + 3 * kMiB);
  EXPECT_EQUAL(stats.all.allocation[0].freed, 2);
  caching().resetPeakStats(0);
  caching().resetAccumulatedStats(0);
  stats = Stats();
  EXPECT_EQUAL(stats.all.allocated_bytes[0].peak, 0);
  EXPECT_EQUAL(stats.all.allocation[0].allocated, 0);
  EXPECT_EQUAL(stats.all.reserved_bytes[0].peak, 22 * kMiB);
  caching().emptyCache();
  stats = Stats();
  EXPECT_EQUAL(stats.reserved(), 0);
  EXPECT_EQUAL(stats.all.num_device_free, 2);
}

CASE(same_stream_reuses_at_once) {
  for (const size_t bytes : {size_t{8}, size_t{100000}, 64 * kMiB}) {
    void* first = allocator().allocate(bytes).get();
    EXPECT(allocator().allocate(bytes).get() == first);
  }
}

CASE(streams_do_not_share_blocks) {
  void* first = allocator().allocate(1000).get();
  const OnStream other(pool_stream(0));
  EXPECT(allocator().allocate(1000).get() != first);
}

CASE(free_neighbours_merge) {
  std::vector<c10::DataPtr> parts;
  for (int i = 0; i < 10; ++i) parts.push_back(allocator().allocate(2 * kMiB));  // fills one segment of 20 MiB
  EXPECT_EQUAL(Stats().all.segment[0].current, 1);
  std::swap(parts[3], parts[8]);
  parts.clear();
  const auto whole = allocator().allocate(9 * kMiB + kMiB / 2);
  EXPECT_EQUAL(Stats().all.segment[0].current, 1);
}

CASE(held_record_stream_defers_reuse) {
  HeldStream held;
  auto a = allocator().allocate(5000);
  void* first = a.get();
  caching().recordStream(a, held.stream);
  a.clear();
  EXPECT_EQUAL(Stats().allocated(), 0);
  EXPECT_EQUAL(Stats().active(), 5120);
  const auto b = allocator().allocate(5000);
  EXPECT(b.get() != first);
  held.release();
  synchronize_stream(held.stream);
  EXPECT_EQUAL(Stats().active(), 5120);
  EXPECT(allocator().allocate(5000).get() == first);
}

CASE(held_own_stream_needs_no_event) {
  HeldStream held;
  const OnStream on(held.stream);
  auto a = allocator().allocate(5000);
  void* first = a.get();
  caching().recordStream(a, held.stream);
  a.clear();
  EXPECT(allocator().allocate(5000).get() == first);
}

// A vendor's allocator: sees where segments come from and go to.
struct WatchingAllocator : CachingAllocator {
  void* segment_alloc(c10::DeviceIndex device, size_t bytes) override {
    ++taken;
    return CachingAllocator::segment_alloc(device, bytes);
  }
  void segment_free(c10::DeviceIndex device, void* ptr, size_t bytes) noexcept override {
    on_free();
    CachingAllocator::segment_free(device, ptr, bytes);
  }
  int taken = 0;
  std::function<void()> on_free = [] {};
};

CASE(held_empty_cache_waits_for_the_work) {
  auto* mine = new WatchingAllocator();  // to the end of the process
  c10::SetAllocator(kDevice, mine, 1);
  HeldStream held;
  {
    const OnStream on(held.stream);
    allocator().allocate(5000);
  }
  EXPECT_EQUAL(mine->taken, 1);
  bool freed = false;
  bool done_before = false;
  mine->on_free = [&] {
    freed = true;
    done_before = query_stream(held.stream);
  };
  std::thread later([&] {  // late enough that an emptyCache that does not wait is caught
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    held.release();
  });
  caching().emptyCache();
  later.join();
  EXPECT(freed && done_before);
  EXPECT_EQUAL(Stats().reserved(), 0);
}

}  // namespace
