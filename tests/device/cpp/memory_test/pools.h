// tests/device/cpp/memory_test/pools.h: cases of memory_test.cpp: private pools and snapshots.
#pragma once

#include "cases.h"

namespace {

CASE(private_pools_keep_their_memory) {
  const c10::MempoolId_t id{0, 7};
  void* first = allocator().allocate(1000).get();
  caching().begin_allocate_to_pool(0, id, [](const c10::Stream& stream) { return stream == default_stream(0); });
  auto a = allocator().allocate(1000);
  EXPECT(a.get() != first);
  EXPECT(contains(error_of([&] { caching().begin_allocate_to_pool(0, id, [](const c10::Stream&) { return true; }); }), "already"));
  caching().end_allocate_to_pool(0, id);
  EXPECT(contains(error_of([&] { caching().end_allocate_to_pool(0, id); }), "no allocations go to pool"));
  EXPECT(allocator().allocate(1000).get() == first);
  bool seen = false;
  for (const auto& segment : caching().snapshot()) seen = seen || segment.owner_private_pool_id == id;
  EXPECT(seen);
  a.clear();
  EXPECT(allocator().allocate(1000).get() == first);  // the pool's block is not for others
  caching().emptyCache();
  EXPECT_EQUAL(Stats().reserved(), 2 * kMiB);  // the pool is still in use
  caching().release_pool(0, id);
  caching().emptyCache();
  EXPECT_EQUAL(Stats().reserved(), 0);
  EXPECT(contains(error_of([&] { caching().release_pool(0, id); }), "not in use"));
}

CASE(snapshot_adds_up) {
  const auto a = allocator().allocate(1000);
  const auto b = allocator().allocate(5 * kMiB);
  allocator().allocate(700);
  size_t reserved = 0;
  size_t allocated = 0;
  size_t requested = 0;
  for (const auto& segment : caching().snapshot()) {
    size_t sum = 0;
    for (const auto& block : segment.blocks) sum += block.size;
    EXPECT_EQUAL(sum, segment.total_size);
    reserved += segment.total_size;
    allocated += segment.allocated_size;
    requested += segment.requested_size;
  }
  EXPECT_EQUAL(static_cast<int64_t>(reserved), Stats().reserved());
  EXPECT_EQUAL(static_cast<int64_t>(allocated), Stats().allocated());
  EXPECT_EQUAL(requested, 1000 + 5 * kMiB);
}

}  // namespace
