// tests/device/cpp/memory_test/basics.h: cases of memory_test.cpp: what c10 asks of an allocator.
#pragma once

#include "cases.h"

namespace {

CASE(e03_tags_the_current_device) {
  const auto a = allocator().allocate(100);
  EXPECT(a.get() != nullptr && reinterpret_cast<uintptr_t>(a.get()) % 512 == 0);
  EXPECT(a.device() == c10::Device(kDevice, 0));
  const auto none = allocator().allocate(0);
  EXPECT(none.get() == nullptr);
  EXPECT(none.device() == c10::Device(kDevice, 0));
  EXPECT_EQUAL(Stats().all.allocation[0].allocated, 1);
}

CASE(two_devices_e04_the_current_device_decides) {
  set_device(1);
  const auto a = allocator().allocate(100);
  EXPECT(a.device() == c10::Device(kDevice, 1));
  EXPECT(allocator().allocate(0).device() == c10::Device(kDevice, 1));
  EXPECT_EQUAL(Stats(0).allocated(), 0);
  EXPECT_EQUAL(Stats(1).allocated(), 512);
}

CASE(e03_loop_does_not_grow) {
  for (int i = 0; i < 10000; ++i) allocator().allocate(static_cast<size_t>(i % 7 + 1) * 3000);
  const Stats stats;
  EXPECT_EQUAL(stats.allocated(), 0);
  EXPECT_EQUAL(stats.reserved(), 2 * kMiB);
  EXPECT_EQUAL(stats.all.num_device_alloc, 1);
}

CASE(e06_raw_allocate) {
  EXPECT(allocator().raw_deleter() != nullptr);
  void* a = allocator().raw_allocate(1000);
  EXPECT_EQUAL(Stats().allocated(), 1024);
  EXPECT_EQUAL(CachingAllocator::block_size(a), 1024);
  allocator().raw_deallocate(a);
  EXPECT_EQUAL(Stats().allocated(), 0);
  EXPECT(allocator().raw_allocate(0) == nullptr);
  allocator().raw_deallocate(nullptr);
  EXPECT(contains(error_of([&] { allocator().raw_deallocate(a); }), "double free"));
  int unknown = 0;
  EXPECT(contains(error_of([&] { allocator().raw_deallocate(&unknown); }), "not an allocation of"));
}

CASE(e07_clone) {
  for (const size_t bytes : {size_t{1}, size_t{1001}, size_t{3} * kMiB + 7}) {
    const auto data = pattern(bytes, 5);
    auto a = allocator().allocate(bytes);
    write(a.get(), data);
    const auto b = allocator().clone(a.get(), bytes);
    EXPECT(b.get() != a.get());
    EXPECT(read(b.get(), bytes, 0) == data);
  }
}

CASE(two_devices_e07_clone) {
  const auto data = pattern(100001, 9);
  auto a = allocator().allocate(data.size());
  write(a.get(), data);
  set_device(1);
  const auto b = allocator().clone(a.get(), data.size());
  EXPECT(b.device() == c10::Device(kDevice, 1));
  EXPECT(read(b.get(), data.size(), 1) == data);
}

}  // namespace
