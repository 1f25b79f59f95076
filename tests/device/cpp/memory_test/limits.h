// tests/device/cpp/memory_test/limits.h: cases of memory_test.cpp: running out, fractions of the device, settings.
#pragma once

#include <c10/core/AllocatorConfig.h>

#include <bit>

#include "cases.h"
#include "memory/alloc_config.h"

namespace {

CASE(out_of_memory_names_sizes_and_cure) {
  const size_t total = caching().getMemoryInfo(0).second;
  const auto most = allocator().allocate(total / 4 * 3);
  const std::string text = error_of([&] { allocator().allocate(total / 2); });
  for (const char* part : {"out of memory", "Tried to allocate", "in total", "free", "reserved", "allocated", "largest free block",
                           "fragmentation", "smaller batch"}) {
    if (!contains(text, part)) throw std::runtime_error(std::string("no '") + part + "' in: " + text);
  }
  const Stats stats;
  EXPECT_EQUAL(stats.all.num_ooms, 1);
  EXPECT_EQUAL(stats.all.num_alloc_retries, 1);
  EXPECT(allocator().allocate(kMiB).get() != nullptr);
  EXPECT(contains(error_of([&] { allocator().allocate(total * 2); }), "out of memory"));
  bool caught = false;
  try {
    allocator().allocate(SIZE_MAX - 5);
  } catch (const c10::OutOfMemoryError&) {
    caught = true;
  }
  EXPECT(caught);
}

CASE(fraction_limits_reserved_memory) {
  const size_t total = caching().getMemoryInfo(0).second;
  caching().set_memory_fraction(100.0 * kMiB / static_cast<double>(total), 0);
  auto a = allocator().allocate(60 * kMiB);
  EXPECT(contains(error_of([] { allocator().allocate(60 * kMiB); }), "memory fraction"));
  EXPECT_EQUAL(Stats().all.num_ooms, 1);
  a.clear();
  allocator().allocate(80 * kMiB);  // the cached 60 MiB go back first
  EXPECT_EQUAL(Stats().reserved(), 80 * kMiB);
  const auto b = allocator().allocate(80 * kMiB);
  const auto c = allocator().allocate(15 * kMiB);
  EXPECT_EQUAL(Stats().reserved(), 96 * kMiB);
  const auto d = allocator().allocate(3 * kMiB);  // no room for a shared segment of 20 MiB, but for what was asked
  EXPECT_EQUAL(Stats().reserved(), 99 * kMiB);
  caching().set_memory_fraction(1.0, 0);
  EXPECT(contains(error_of([] { caching().set_memory_fraction(1.5, 0); }), "[0, 1]"));
}

CASE(held_retry_waits_for_other_streams) {
  const size_t total = caching().getMemoryInfo(0).second;
  caching().set_memory_fraction(100.0 * kMiB / static_cast<double>(total), 0);
  HeldStream held;
  auto a = allocator().allocate(80 * kMiB);
  caching().recordStream(a, held.stream);
  a.clear();
  std::thread later([&] {
    while (caching().getDeviceStats(0).num_sync_all_streams == 0) std::this_thread::yield();
    held.release();
  });
  const auto b = allocator().allocate(70 * kMiB);
  later.join();
  EXPECT(b.get() != nullptr);
  EXPECT_EQUAL(Stats().all.num_alloc_retries, 1);
  EXPECT_EQUAL(Stats().all.num_ooms, 0);
}

CASE(settings) {
  EXPECT(contains(error_of([] { set_allocator_settings("max_spilt_size_mb:64"); }), "the keys are backend, expandable_segments, "));
  EXPECT(contains(error_of([] { set_allocator_settings("max_split_size_mb"); }), "key:value"));
  EXPECT(contains(error_of([] { set_allocator_settings("max_split_size_mb:20"); }), "greater than 20"));
  EXPECT(contains(error_of([] { set_allocator_settings("max_split_size_mb:big"); }), "expected a number"));
  EXPECT(contains(error_of([] { set_allocator_settings("garbage_collection_threshold:1.5"); }), "between 0 and 1"));
  EXPECT(contains(error_of([] { set_allocator_settings("roundup_power2_divisions:3"); }), "power of two"));
  EXPECT_EQUAL(memory::alloc_config().text, std::string(""));
  set_allocator_settings("roundup_power2_divisions: 4");
  EXPECT_EQUAL(memory::alloc_config().text, std::string("roundup_power2_divisions:4"));
  const auto block = [](size_t bytes) { return CachingAllocator::block_size(allocator().allocate(bytes).get()); };
  EXPECT_EQUAL(block(1200 * 1024), 1280 * 1024);
  EXPECT_EQUAL(block(1024 * 1024), 1024 * 1024);
  EXPECT_EQUAL(block(700), 1024);
  set_allocator_settings("roundup_power2_divisions:[2:1,4:2,>:1]");
  EXPECT_EQUAL(block(1200 * 1024), 1200 * 1024);
  EXPECT_EQUAL(block(3 * kMiB + 512), 3 * kMiB + 512);
  EXPECT_EQUAL(block(5 * kMiB), 6 * kMiB);
  const auto rounded = [](size_t bytes) { return memory::alloc_config().round(bytes); };
  EXPECT_EQUAL(rounded(9 * kMiB + 512), 9 * kMiB + 512);
  set_allocator_settings("roundup_power2_divisions:[64:8]");
  EXPECT_EQUAL(block(84 * kMiB), 88 * kMiB);
  EXPECT_EQUAL(rounded(5 * kMiB + 512), 5 * kMiB + 512 * 1024);
  EXPECT_EQUAL(block(130 * kMiB), 130 * kMiB);
  EXPECT(contains(error_of([] { set_allocator_settings("roundup_power2_divisions:[64:8,64:4]"); }), "must increase"));
}

// c10 reads the same text for every accelerator.
CASE(divisions_are_c10s) {
  auto& c10s = c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
  const auto rounded = [](size_t bytes) {
    const size_t divisions = c10::CachingAllocator::AcceleratorAllocatorConfig::roundup_power2_divisions(bytes);
    const size_t step = divisions > 1 && !std::has_single_bit(bytes) ? std::bit_floor(bytes) / divisions : 512;
    return (bytes + step - 1) / step * step;
  };
  for (const std::string text : {"4", "[64:8]", "[64:8,256:4,1024:4,>:1]", "[256:1,512:2,1024:4,>:8]", "[1:2,4:16,>:8]", "[65536:4]"}) {
    c10s.parseArgs("roundup_power2_divisions:1");  // it keeps what a text does not name
    c10s.parseArgs("roundup_power2_divisions:" + text);
    set_allocator_settings("roundup_power2_divisions:" + text);
    for (size_t bytes = 3 * kMiB / 2; bytes < size_t{300} << 30; bytes = bytes * 4 / 3 / 512 * 512) {
      EXPECT_EQUAL(memory::alloc_config().round(bytes), rounded(bytes));
    }
  }
}

CASE(fraction_0_lets_nothing_new_in) {
  const auto kept = allocator().allocate(3 * kMiB);
  caching().set_memory_fraction(0, 0);
  EXPECT_EQUAL(caching().memory_fraction(0), 0);
  EXPECT(allocator().allocate(kMiB + 512).get() != nullptr);  // beside the first
  EXPECT(contains(error_of([] { allocator().allocate(60 * kMiB); }), "memory fraction"));
  set_allocator_settings("per_process_memory_fraction:0.0");
  EXPECT(contains(error_of([] { allocator().allocate(60 * kMiB); }), "memory fraction"));
  set_allocator_settings("per_process_memory_fraction:1.0");
  EXPECT(allocator().allocate(60 * kMiB).get() != nullptr);
}

CASE(settings_that_cannot_be_kept_are_refused) {
  set_allocator_settings(
      "backend:native,release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:False,throw_on_cudamalloc_oom:False");
  for (const std::string wrong : {"backend:cudaMallocAsync", "release_lock_on_cudamalloc:False", "throw_on_cudamalloc_oom:True",
                                  "pinned_use_background_threads:True", "graph_capture_record_stream_reuse:True"}) {
    EXPECT(contains(error_of([&] { set_allocator_settings(wrong); }), "supports only"));
  }
  EXPECT(contains(error_of([] { set_allocator_settings("pinned_num_register_threads:4"); }), "requires pinned_use_cuda_host_register"));
  for (const std::string count : {"0", "3", "256"}) {
    EXPECT(contains(error_of([&] { set_allocator_settings("pinned_num_register_threads:" + count); }), "power of two"));
  }
  EXPECT(contains(memory::alloc_config().text, "backend:native"));
}

CASE(settings_of_sizes) {
  set_allocator_settings("large_segment_size_mb:64,max_split_size_mb:128,max_non_split_rounding_mb:40");
  {
    const auto shared = allocator().allocate(5 * kMiB);
  }
  EXPECT_EQUAL(Stats().reserved(), 64 * kMiB);
  void* large = allocator().allocate(200 * kMiB).get();
  EXPECT(allocator().allocate(161 * kMiB).get() == large);  // wastes 39 MiB
  EXPECT(allocator().allocate(159 * kMiB).get() != large);
  set_allocator_settings("per_process_memory_fraction:0.25");
  EXPECT_EQUAL(caching().memory_fraction(0), 0.25);
}

CASE(settings_of_pinned_sizes) {
  if (!compat::kPinnedCacheHasLimits) {
    for (const char* setting : {"pinned_max_round_threshold_mb:1", "pinned_max_cached_size_mb:4"})
      EXPECT(contains(error_of([&] { set_allocator_settings(setting); }), "torch before 2.13"));
    return;
  }
  set_allocator_settings("pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:4");
  const auto pinned_bytes = [] { return pinned_allocator().get_stats().allocated_bytes.current; };
  {
    const auto rounded = pinned_allocator().allocate(kMiB - 5000);
  }
  EXPECT_EQUAL(pinned_bytes(), kMiB);
  {
    const auto exact = pinned_allocator().allocate(kMiB + 4096);
  }
  EXPECT_EQUAL(pinned_bytes(), 2 * kMiB + 4096);
  {
    const auto not_cached = pinned_allocator().allocate(8 * kMiB);
  }
  EXPECT_EQUAL(pinned_bytes(), 2 * kMiB + 4096);
}

CASE(pinned_memory_is_cut_from_one_segment) {
  set_allocator_settings("pinned_reserve_segment_size_mb:4");
  auto a = pinned_allocator().allocate(kMiB);
  auto b = pinned_allocator().allocate(kMiB);
  EXPECT_EQUAL(static_cast<char*>(b.get()) - static_cast<char*>(a.get()), kMiB);
  EXPECT(is_pinned(a.get()) && is_pinned(static_cast<char*>(b.get()) + kMiB - 1));
  auto large = pinned_allocator().allocate(8 * kMiB);  // does not fit, and gets memory of its own
  EXPECT(static_cast<char*>(large.get()) < static_cast<char*>(a.get()) ||
         static_cast<char*>(large.get()) >= static_cast<char*>(a.get()) + 4 * kMiB);
  void* const begin = a.get();
  for (auto* one : {&a, &b, &large}) one->clear();
  pinned_allocator().empty_cache();
  const auto whole = pinned_allocator().allocate(4 * kMiB);
  EXPECT(whole.get() == begin);  // all pieces were free, so it begins anew
  std::memset(whole.get(), 1, 4 * kMiB);
}

CASE(pinned_memory_is_registered) {
  set_allocator_settings("pinned_use_cuda_host_register:True,pinned_num_register_threads:4");
  const auto device_memory = allocator().allocate(kMiB);
  for (int i = 0; i < 2; ++i) {
    auto host = pinned_allocator().allocate(kMiB);
    EXPECT(is_pinned(host.get()));
    std::memset(host.get(), 7 + i, kMiB);
    copy_bytes({reinterpret_cast<uint64_t>(device_memory.get()), 0}, {reinterpret_cast<uint64_t>(host.get()), -1}, kMiB, default_stream(0),
               true);
    std::vector<char> back(kMiB);
    copy_bytes({reinterpret_cast<uint64_t>(back.data()), -1}, {reinterpret_cast<uint64_t>(device_memory.get()), 0}, kMiB, default_stream(0),
               false);
    EXPECT(back.front() == 7 + i && back.back() == 7 + i);
    host.clear();
    pinned_allocator().empty_cache();
    if (i == 0) set_allocator_settings("");  // what was registered goes back as such
  }
  EXPECT_EQUAL(pinned_allocator().get_stats().allocations.current, 0);
}

CASE(max_split_size_keeps_large_blocks_whole) {
  set_allocator_settings("max_split_size_mb:32");
  void* large = allocator().allocate(64 * kMiB).get();
  const auto small = allocator().allocate(12 * kMiB);  // not out of the 64 MiB
  EXPECT_EQUAL(Stats().reserved(), 76 * kMiB);
  EXPECT(allocator().allocate(50 * kMiB).get() == large);  // nearly fills it
  EXPECT_EQUAL(Stats().all.oversize_segments.current, 1);
  EXPECT_EQUAL(CachingAllocator::block_size(allocator().allocate(64 * kMiB).get()), 64 * kMiB);  // the front cache counts, too
  EXPECT_EQUAL(Stats().all.oversize_allocations.allocated, 3);
  EXPECT_EQUAL(Stats().all.oversize_allocations.current, 0);
  EXPECT_EQUAL(Stats().all.max_split_size, 32 * kMiB);
}

CASE(garbage_collection_gives_back_the_oldest) {
  const size_t total = caching().getMemoryInfo(0).second;
  caching().set_memory_fraction(200.0 * kMiB / static_cast<double>(total), 0);
  set_allocator_settings("garbage_collection_threshold:0.5");
  auto keep = allocator().allocate(44 * kMiB);
  allocator().allocate(40 * kMiB);
  for (int i = 0; i < 5; ++i) allocator().allocate(static_cast<size_t>(100 + i) * 512);  // time passes
  keep.clear();
  EXPECT_EQUAL(Stats().all.num_device_free, 0);
  const auto b = allocator().allocate(60 * kMiB);
  EXPECT_EQUAL(Stats().all.num_device_free, 1);
  EXPECT_EQUAL(Stats().all.num_alloc_retries, 0);
  EXPECT_EQUAL(Stats().reserved(), (44 + 2 + 60) * kMiB);
}

}  // namespace
