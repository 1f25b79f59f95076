// tests/device/cpp/memory_test/expandable.h: cases of memory_test.cpp: expandable segments.
#pragma once

#include "cases.h"

namespace {

int64_t mapped_runs() {
  int64_t runs = 0;
  for (const auto& segment : caching().snapshot()) runs += segment.is_expandable ? 1 : 0;
  return runs;
}

CASE(expandable_segments_grow_in_place) {
  set_allocator_settings("expandable_segments:True");
  std::vector<c10::DataPtr> kept;
  char* first = nullptr;
  for (int i = 0; i < 8; ++i) {
    kept.push_back(allocator().allocate(15 * kMiB));
    if (i == 0) first = static_cast<char*>(kept[0].get());
    EXPECT(kept.back().get() == first + static_cast<size_t>(i) * 15 * kMiB);
  }
  EXPECT_EQUAL(Stats().reserved(), 120 * kMiB);  // ordinary segments: 8 * 16
  EXPECT_EQUAL(Stats().all.segment[0].current, 1);
  EXPECT_EQUAL(Stats().all.num_device_alloc, 6);
  EXPECT_EQUAL(mapped_runs(), 1);
  // All eight lie side by side: what was small becomes one large piece.
  const auto bytes = pattern(30 * kMiB, 3);
  kept.clear();
  const auto whole = allocator().allocate(120 * kMiB);
  EXPECT(whole.get() == first);
  EXPECT_EQUAL(Stats().reserved(), 120 * kMiB);
  write(first + 5 * kMiB, bytes);
  EXPECT(read(first + 5 * kMiB, bytes.size(), 0) == bytes);
  const auto small = allocator().allocate(1000);
  EXPECT_EQUAL(Stats().all.segment[0].current, 2);
  EXPECT_EQUAL(Stats().reserved(), 122 * kMiB);
}

CASE(expandable_segments_give_idle_chunks_back) {
  set_allocator_settings("expandable_segments:True");
  const size_t before = caching().getMemoryInfo(0).first;
  auto low = allocator().allocate(30 * kMiB);
  auto middle = allocator().allocate(70 * kMiB);
  auto high = allocator().allocate(20 * kMiB);
  EXPECT_EQUAL(Stats().reserved(), 120 * kMiB);
  const void* hole = middle.get();
  middle.clear();
  caching().emptyCache();
  EXPECT_EQUAL(Stats().reserved(), 60 * kMiB);  // 40 to 100 MiB is a hole
  EXPECT_EQUAL(caching().getMemoryInfo(0).first, before - 60 * kMiB);
  EXPECT_EQUAL(mapped_runs(), 2);
  EXPECT_EQUAL(Stats().all.inactive_split[0].current, 0);
  middle = allocator().allocate(65 * kMiB);  // the hole is filled again
  EXPECT(middle.get() == hole);
  EXPECT_EQUAL(mapped_runs(), 1);
  for (auto* part : {&low, &middle, &high}) part->clear();
  caching().emptyCache();
  EXPECT_EQUAL(Stats().reserved(), 0);
  EXPECT_EQUAL(Stats().all.segment[0].current, 0);
  EXPECT_EQUAL(Stats().all.num_device_alloc, Stats().all.num_device_free);
  EXPECT_EQUAL(caching().getMemoryInfo(0).first, before);
}

CASE(expandable_segments_run_out_and_recover) {
  const size_t total = caching().getMemoryInfo(0).second;
  set_allocator_settings("expandable_segments:True");
  caching().set_memory_fraction(200.0 * kMiB / static_cast<double>(total), 0);
  auto a = allocator().allocate(150 * kMiB);
  EXPECT(contains(error_of([] { allocator().allocate(60 * kMiB); }), "memory fraction"));
  const auto b = allocator().allocate(9 * kMiB);  // the tenth chunk holds it
  EXPECT_EQUAL(Stats().reserved(), 160 * kMiB);
  a.clear();
  caching().set_memory_fraction(1, 0);
  const auto most = allocator().allocate(total / 4 * 3);
  const std::string text = error_of([&] { allocator().allocate(total / 2); });
  EXPECT(contains(text, "out of memory") && contains(text, "The driver says"));
  const auto c = allocator().allocate(total / 8);
  c10::DataPtr other;
  {
    const OnStream on(pool_stream(0));
    other = allocator().allocate(5 * kMiB);  // a segment of its stream's
  }
  EXPECT(other.get() < b.get() || other.get() > static_cast<char*>(c.get()) + total / 8);
}

CASE(expandable_private_pools) {
  set_allocator_settings("expandable_segments:True");
  const c10::MempoolId_t id{0, 9};
  caching().begin_allocate_to_pool(0, id, [](const c10::Stream&) { return true; });
  {
    const auto inside = allocator().allocate(5 * kMiB);
  }
  caching().end_allocate_to_pool(0, id);
  EXPECT_EQUAL(Stats().reserved(), 20 * kMiB);
  caching().release_pool(0, id);
  caching().emptyCache();
  EXPECT_EQUAL(Stats().reserved(), 0);
}

}  // namespace
