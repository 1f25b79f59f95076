// tests/device/cpp/memory_test/host.h: cases of memory_test.cpp: pinned memory, storages.
#pragma once

#include "cases.h"

namespace {

CASE(pinned_before_first_use_opens_nothing) {
  int x = 0;
  EXPECT(!is_pinned(&x));
  EXPECT(driver_if_open() == nullptr);
}

CASE(pinned_intervals) {
  auto a = pinned_allocator().allocate(1000);
  EXPECT(a.device().is_cpu());
  auto* begin = static_cast<char*>(a.get());
  EXPECT(is_pinned(begin) && is_pinned(begin + 999));
  std::memset(begin, 1, 1000);
  const std::vector<char> pageable(1000);
  EXPECT(!is_pinned(pageable.data()) && !is_pinned(nullptr));
  const auto device_memory = allocator().allocate(1000);
  EXPECT(!is_pinned(device_memory.get()));
  a.clear();
  EXPECT(pinned_allocator().allocate(1000).get() == begin);  // cached
  pinned_allocator().empty_cache();
  EXPECT(!is_pinned(begin));
  const auto stats = pinned_allocator().get_stats();
  EXPECT_EQUAL(stats.allocations.current, 0);
  EXPECT_EQUAL(stats.num_host_alloc, 1);
  EXPECT_EQUAL(stats.num_host_free, 1);
  EXPECT_EQUAL(stats.host_alloc_time.count, 1);
  EXPECT_EQUAL(stats.host_free_time.count, 1);
  EXPECT(at::getHostAllocator(kDevice) == &pinned_allocator());
}

CASE(held_pinned_reuse_waits_for_the_stream) {
  HeldStream held;
  auto a = pinned_allocator().allocate(1000);
  void* first = a.get();
  EXPECT(pinned_allocator().record_event(first, nullptr, held.stream));
  EXPECT(!pinned_allocator().record_event(&held, nullptr, held.stream));
  a.clear();
  const auto b = pinned_allocator().allocate(1000);
  EXPECT(b.get() != first);
  held.release();
  synchronize_stream(held.stream);
  EXPECT(pinned_allocator().allocate(1000).get() == first);
}

c10::intrusive_ptr<c10::StorageImpl> make_storage(size_t bytes, c10::DataPtr data) {
  return c10::make_storage_impl(c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)), std::move(data),
                                &allocator(), true, c10::Device(kDevice, 0));
}

CASE(e40_storage_factory) {
  static int created = 0;
  storage_factory().vendor = [](c10::StorageImpl::use_byte_size_t tag, c10::SymInt bytes, c10::DataPtr d, c10::Allocator* a,
                                bool resizable) {
    ++created;
    return storage_factory().core(tag, std::move(bytes), std::move(d), a, resizable);
  };
  const auto made = make_storage(100, c10::DataPtr());
  EXPECT_EQUAL(created, 1);
  EXPECT(made->data() != nullptr && made->device() == c10::Device(kDevice, 0));
  auto data = allocator().allocate(100);
  void* ptr = data.get();
  const auto given = make_storage(100, std::move(data));
  EXPECT_EQUAL(created, 2);
  EXPECT(given->data() == ptr);
  const auto tensor = at::empty({3}, at::TensorOptions().device(kDevice));
  EXPECT_EQUAL(created, 3);
  EXPECT(tensor.device() == c10::Device(kDevice, 0));
}

CASE(e18_storage_resize_keeps_bytes) {
  const auto data = pattern(1000, 3);
  const c10::Storage storage(make_storage(1000, c10::DataPtr()));
  write(storage.mutable_data(), data);
  resize_storage(storage, 3 * kMiB);
  EXPECT_EQUAL(storage.nbytes(), 3 * kMiB);
  EXPECT(read(storage.data(), 1000, 0) == data);
  resize_storage(storage, 10);
  EXPECT(read(storage.data(), 10, 0) == std::vector<char>(data.begin(), data.begin() + 10));
  resize_storage(storage, 0);
  EXPECT(storage.data() == nullptr && storage.device() == c10::Device(kDevice, 0));
  resize_storage(storage, 20);
  EXPECT(storage.data() != nullptr);
}

// The old memory is freed while the copy out of it still waits on another stream than its own: nobody may get it yet.
CASE(held_resize_keeps_the_old_bytes_alive) {
  const auto data = pattern(1000, 3);
  const c10::Storage storage(make_storage(1000, c10::DataPtr()));
  const void* old = storage.data();
  write(storage.mutable_data(), data);
  HeldStream held;
  {
    const OnStream on(held.stream);
    resize_storage(storage, 2000);
  }
  const auto other = allocator().allocate(1000);
  EXPECT(other.get() != old);
  write(other.get(), pattern(1000, 77));
  held.release();
  synchronize_stream(held.stream);
  EXPECT(read(storage.data(), 1000, 0) == data);
}

}  // namespace
