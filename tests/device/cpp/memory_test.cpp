// tests/device/cpp/memory_test.cpp: the memory of lib<device>.so from C++: one named case a contract, run by test_memory_cpp.py.
//
// Usage: memory_test [--without PREFIX]... [CASE...]. Each case runs in a process of its own, forked before the driver is opened. Cases
// named held_ need a stream that a host function can hold up: bp.host_exec, and streams that are not inline; two_devices_ need two.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>

#include "memory/caching_allocator.h"
#include "memory/pinned_allocator.h"
#include "memory/storage.h"
#include "runtime/driver.h"
#include "runtime/event.h"
#include "runtime/peer.h"
#include "runtime/stream.h"

using namespace backplane;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

#define EXPECT(condition)                                                               \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      throw std::runtime_error("line " + std::to_string(__LINE__) + ": " + #condition); \
    }                                                                                   \
  } while (false)

#define EXPECT_EQUAL(a, b)                                                                        \
  do {                                                                                            \
    auto value_a = (a);                                                                           \
    auto value_b = (b);                                                                           \
    if (!(value_a == static_cast<decltype(value_a)>(value_b))) {                                  \
      std::ostringstream text;                                                                    \
      text << "line " << __LINE__ << ": " << #a << " is " << value_a << ", expected " << value_b; \
      throw std::runtime_error(text.str());                                                       \
    }                                                                                             \
  } while (false)

template <typename Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

c10::Allocator& allocator() { return *c10::GetAllocator(kDevice); }
CachingAllocator& caching() { return caching_allocator(); }

struct Stats {
  explicit Stats(c10::DeviceIndex device = 0) : all(caching().getDeviceStats(device)) {}
  int64_t allocated() const { return all.allocated_bytes[0].current; }
  int64_t active() const { return all.active_bytes[0].current; }
  int64_t reserved() const { return all.reserved_bytes[0].current; }
  DeviceStats all;
};

void write(void* device_ptr, const std::vector<char>& bytes) {
  const auto device = current_device();
  call<&bp_driver::copy>(device, current_stream_handle(device), int32_t{BP_COPY_HOST_TO_DEVICE}, reinterpret_cast<uint64_t>(device_ptr),
                         driver_index(device), reinterpret_cast<uint64_t>(bytes.data()), int32_t{BP_HOST_DEVICE}, uint64_t{bytes.size()});
}

std::vector<char> read(const void* device_ptr, size_t bytes, c10::DeviceIndex device) {
  std::vector<char> host(bytes);
  call<&bp_driver::copy>(device, current_stream_handle(device), int32_t{BP_COPY_DEVICE_TO_HOST}, reinterpret_cast<uint64_t>(host.data()),
                         int32_t{BP_HOST_DEVICE}, reinterpret_cast<uint64_t>(device_ptr), driver_index(device), uint64_t{bytes});
  return host;
}

std::vector<char> pattern(size_t bytes, int seed) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed));
  return data;
}

// A pool stream whose work does not go on until release(): stands for a long kernel.
class HeldStream {
 public:
  explicit HeldStream(c10::DeviceIndex device = 0) : stream(pool_stream(device)) {
    const bp_host_exec* exec = open_driver().host_exec;
    EXPECT(exec != nullptr);
    const auto wait = [](void* flag) -> int32_t {
      while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
      return BP_OK;
    };
    EXPECT_EQUAL(exec->enqueue(exec->head.self, driver_index(device), stream_handle(stream), wait, &go_, nullptr), int32_t{BP_OK});
  }
  ~HeldStream() {
    release();
    synchronize_stream(stream);
  }
  void release() { go_.store(true); }
  c10::Stream stream;

 private:
  std::atomic<bool> go_{false};
};

struct OnStream {
  explicit OnStream(const c10::Stream& stream) : previous(exchange_stream(stream)) {}
  ~OnStream() { exchange_stream(previous); }
  c10::Stream previous;
};

// ---- what c10 asks
// -----------------------------------------------------------------------------------------------------------------------

void e03_tags_the_current_device() {
  const auto a = allocator().allocate(100);
  EXPECT(a.get() != nullptr && reinterpret_cast<uintptr_t>(a.get()) % 512 == 0);
  EXPECT(a.device() == c10::Device(kDevice, 0));
  const auto none = allocator().allocate(0);
  EXPECT(none.get() == nullptr);
  EXPECT(none.device() == c10::Device(kDevice, 0));
  EXPECT_EQUAL(Stats().all.allocation[0].allocated, 1);
}

void two_devices_e04_the_current_device_decides() {
  set_device(1);
  const auto a = allocator().allocate(100);
  EXPECT(a.device() == c10::Device(kDevice, 1));
  EXPECT(allocator().allocate(0).device() == c10::Device(kDevice, 1));
  EXPECT_EQUAL(Stats(0).allocated(), 0);
  EXPECT_EQUAL(Stats(1).allocated(), 512);
}

void e03_loop_does_not_grow() {
  for (int i = 0; i < 10000; ++i) allocator().allocate(static_cast<size_t>(i % 7 + 1) * 3000);
  const Stats stats;
  EXPECT_EQUAL(stats.allocated(), 0);
  EXPECT_EQUAL(stats.reserved(), 2 * kMiB);
  EXPECT_EQUAL(stats.all.num_device_alloc, 1);
}

void e06_raw_allocate() {
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
  EXPECT(contains(error_of([&] { allocator().raw_deallocate(&unknown); }), "no allocation of"));
}

void e07_clone() {
  for (const size_t bytes : {size_t{1}, size_t{1001}, size_t{3} * kMiB + 7}) {
    const auto data = pattern(bytes, 5);
    auto a = allocator().allocate(bytes);
    write(a.get(), data);
    const auto b = allocator().clone(a.get(), bytes);
    EXPECT(b.get() != a.get());
    EXPECT(read(b.get(), bytes, 0) == data);
  }
}

void two_devices_e07_clone() {
  const auto data = pattern(100001, 9);
  auto a = allocator().allocate(data.size());
  write(a.get(), data);
  set_device(1);
  const auto b = allocator().clone(a.get(), data.size());
  EXPECT(b.device() == c10::Device(kDevice, 1));
  EXPECT(read(b.get(), data.size(), 1) == data);
}

// ---- caching
// -----------------------------------------------------------------------------------------------------------------------------

// The simulated device reaches a peer's memory only after access was switched on.
void two_devices_copies_switch_peer_access_on() {
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

void statistics_are_exact() {
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

void same_stream_reuses_at_once() {
  for (const size_t bytes : {size_t{8}, size_t{100000}, 64 * kMiB}) {
    void* first = allocator().allocate(bytes).get();
    EXPECT(allocator().allocate(bytes).get() == first);
  }
}

void streams_do_not_share_blocks() {
  void* first = allocator().allocate(1000).get();
  const OnStream other(pool_stream(0));
  EXPECT(allocator().allocate(1000).get() != first);
}

void free_neighbours_merge() {
  std::vector<c10::DataPtr> parts;
  for (int i = 0; i < 10; ++i) parts.push_back(allocator().allocate(2 * kMiB));  // fills one segment of 20 MiB
  EXPECT_EQUAL(Stats().all.segment[0].current, 1);
  std::swap(parts[3], parts[8]);
  parts.clear();
  const auto whole = allocator().allocate(9 * kMiB + kMiB / 2);
  EXPECT_EQUAL(Stats().all.segment[0].current, 1);
}

void held_record_stream_defers_reuse() {
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

void held_own_stream_needs_no_event() {
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

void held_empty_cache_waits_for_the_work() {
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

// ---- limits
// ------------------------------------------------------------------------------------------------------------------------------

void out_of_memory_names_sizes_and_cure() {
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

void fraction_limits_reserved_memory() {
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
  EXPECT(contains(error_of([] { caching().set_memory_fraction(1.5, 0); }), "(0, 1]"));
}

void held_retry_waits_for_other_streams() {
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

void settings() {
  EXPECT(contains(error_of([] { set_allocator_settings("max_spilt_size_mb:64"); }), "the keys are backend, expandable_segments, "));
  EXPECT(contains(error_of([] { set_allocator_settings("max_split_size_mb"); }), "key:value"));
  EXPECT(contains(error_of([] { set_allocator_settings("max_split_size_mb:20"); }), "greater than 20"));
  EXPECT(contains(error_of([] { set_allocator_settings("max_split_size_mb:big"); }), "expected a number"));
  EXPECT(contains(error_of([] { set_allocator_settings("garbage_collection_threshold:1.5"); }), "between 0 and 1"));
  EXPECT(contains(error_of([] { set_allocator_settings("roundup_power2_divisions:3"); }), "power of two"));
  EXPECT_EQUAL(allocator_settings(), std::string(""));
  set_allocator_settings("roundup_power2_divisions: 4");
  EXPECT_EQUAL(allocator_settings(), std::string("roundup_power2_divisions:4"));
  const auto block = [](size_t bytes) { return CachingAllocator::block_size(allocator().allocate(bytes).get()); };
  EXPECT_EQUAL(block(1200 * 1024), 1280 * 1024);
  EXPECT_EQUAL(block(1024 * 1024), 1024 * 1024);
  EXPECT_EQUAL(block(700), 1024);
  set_allocator_settings("roundup_power2_divisions:[2:1,8:2,>:1]");
  EXPECT_EQUAL(block(1200 * 1024), 1200 * 1024);
  EXPECT_EQUAL(block(5 * kMiB), 6 * kMiB);
  EXPECT_EQUAL(block(9 * kMiB + 512), 9 * kMiB + 512);
}

void settings_that_cannot_be_kept_are_refused() {
  set_allocator_settings(
      "backend:native,release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:False,throw_on_cudamalloc_oom:False");
  for (const std::string wrong : {"backend:cudaMallocAsync", "release_lock_on_cudamalloc:False", "pinned_use_cuda_host_register:True",
                                  "throw_on_cudamalloc_oom:True", "pinned_use_background_threads:True", "pinned_num_register_threads:4",
                                  "pinned_reserve_segment_size_mb:512", "graph_capture_record_stream_reuse:True"}) {
    EXPECT(contains(error_of([&] { set_allocator_settings(wrong); }), "can only do"));
  }
  EXPECT(contains(allocator_settings(), "backend:native"));
}

void settings_of_sizes() {
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

void max_split_size_keeps_large_blocks_whole() {
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

void garbage_collection_gives_back_the_oldest() {
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

// ---- expandable segments

int64_t mapped_runs() {
  int64_t runs = 0;
  for (const auto& segment : caching().snapshot()) runs += segment.is_expandable ? 1 : 0;
  return runs;
}

void expandable_segments_grow_in_place() {
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

void expandable_segments_give_idle_chunks_back() {
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

void expandable_segments_run_out_and_recover() {
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

void expandable_private_pools_and_threads() {
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
  std::vector<std::thread> workers;
  for (int t = 0; t < 4; ++t) {
    workers.emplace_back([t] {
      std::vector<c10::DataPtr> kept(5);
      for (size_t i = 0; i < 400; ++i) {
        const size_t bytes = ((i * 7919 + static_cast<size_t>(t) * 104729) % 40 + 1) * kMiB / 2;
        kept[i % kept.size()] = allocator().allocate(bytes);
        if (i % 50 == 0) caching().emptyCache();
      }
    });
  }
  for (auto& worker : workers) worker.join();
  EXPECT_EQUAL(Stats().allocated(), 0);
  caching().emptyCache();
  EXPECT_EQUAL(Stats().reserved(), 0);
}

// ---- pools, snapshot
// ---------------------------------------------------------------------------------------------------------------------

void private_pools_keep_their_memory() {
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

void snapshot_adds_up() {
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

// ---- threads, processes
// ------------------------------------------------------------------------------------------------------------------

// Blocks of live allocations never overlap, whichever threads allocate and free; at the end everything is accounted for.
void threads() {
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
void threads_under_pressure() {
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

void forked_child_frees_nothing() {
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

// ---- pinned memory, storages
// ---------------------------------------------------------------------------------------------------------------

void pinned_before_first_use_opens_nothing() {
  int x = 0;
  EXPECT(!is_pinned(&x));
  EXPECT(driver_if_open() == nullptr);
}

void pinned_intervals() {
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

void held_pinned_reuse_waits_for_the_stream() {
  HeldStream held;
  auto a = pinned_allocator().allocate(1000);
  void* first = a.get();
  EXPECT(record_pinned(static_cast<char*>(first) + 10, nullptr, held.stream));
  EXPECT(!record_pinned(&held, nullptr, held.stream));
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

void e40_storage_factory() {
  const uint64_t before = storages_created();
  const auto made = make_storage(100, c10::DataPtr());
  EXPECT_EQUAL(storages_created(), before + 1);
  EXPECT(made->data() != nullptr && made->device() == c10::Device(kDevice, 0));
  auto data = allocator().allocate(100);
  void* ptr = data.get();
  const auto given = make_storage(100, std::move(data));
  EXPECT_EQUAL(storages_created(), before + 2);
  EXPECT(given->data() == ptr);
  const auto tensor = at::empty({3}, at::TensorOptions().device(kDevice));
  EXPECT_EQUAL(storages_created(), before + 3);
  EXPECT(tensor.device() == c10::Device(kDevice, 0));
  static bool vendors = false;
  storage_factory().vendor = [](c10::StorageImpl::use_byte_size_t tag, c10::SymInt bytes, c10::DataPtr d, c10::Allocator* a,
                                bool resizable) {
    vendors = true;
    return storage_factory().core(tag, std::move(bytes), std::move(d), a, resizable);
  };
  make_storage(100, c10::DataPtr());
  EXPECT(vendors);
}

void e18_storage_resize_keeps_bytes() {
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
void held_resize_keeps_the_old_bytes_alive() {
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

const std::map<std::string, void (*)()>& cases() {
#define CASE(name) \
  {                \
    #name, &name   \
  }
  static const std::map<std::string, void (*)()> all = {CASE(e03_tags_the_current_device),
                                                        CASE(e03_loop_does_not_grow),
                                                        CASE(e06_raw_allocate),
                                                        CASE(e07_clone),
                                                        CASE(two_devices_e04_the_current_device_decides),
                                                        CASE(two_devices_e07_clone),
                                                        CASE(two_devices_copies_switch_peer_access_on),
                                                        CASE(statistics_are_exact),
                                                        CASE(same_stream_reuses_at_once),
                                                        CASE(streams_do_not_share_blocks),
                                                        CASE(free_neighbours_merge),
                                                        CASE(held_record_stream_defers_reuse),
                                                        CASE(held_own_stream_needs_no_event),
                                                        CASE(held_empty_cache_waits_for_the_work),
                                                        CASE(out_of_memory_names_sizes_and_cure),
                                                        CASE(fraction_limits_reserved_memory),
                                                        CASE(held_retry_waits_for_other_streams),
                                                        CASE(settings),
                                                        CASE(settings_that_cannot_be_kept_are_refused),
                                                        CASE(settings_of_sizes),
                                                        CASE(max_split_size_keeps_large_blocks_whole),
                                                        CASE(garbage_collection_gives_back_the_oldest),
                                                        CASE(expandable_segments_grow_in_place),
                                                        CASE(expandable_segments_give_idle_chunks_back),
                                                        CASE(expandable_segments_run_out_and_recover),
                                                        CASE(expandable_private_pools_and_threads),
                                                        CASE(private_pools_keep_their_memory),
                                                        CASE(snapshot_adds_up),
                                                        CASE(threads),
                                                        CASE(threads_under_pressure),
                                                        CASE(forked_child_frees_nothing),
                                                        CASE(pinned_before_first_use_opens_nothing),
                                                        CASE(pinned_intervals),
                                                        CASE(held_pinned_reuse_waits_for_the_stream),
                                                        CASE(e40_storage_factory),
                                                        CASE(e18_storage_resize_keeps_bytes),
                                                        CASE(held_resize_keeps_the_old_bytes_alive)};
#undef CASE
  return all;
}

int run(const std::string& name) {
  try {
    cases().at(name)();
    return 0;
  } catch (const std::exception& error) {
    std::cout << name << ": " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names;
  std::vector<std::string> without;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--without" && i + 1 < argc) {
      without.emplace_back(argv[++i]);
    } else {
      names.emplace_back(argv[i]);
    }
  }
  if (names.empty()) {
    for (const auto& entry : cases()) names.push_back(entry.first);
  }
  int ran = 0;
  int failed = 0;
  for (const auto& name : names) {
    if (std::any_of(without.begin(), without.end(), [&](const std::string& prefix) { return name.rfind(prefix, 0) == 0; })) continue;
    ++ran;
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      _exit(run(name));
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status == 0) continue;
    ++failed;
    std::cout << "FAILED " << name << (WIFSIGNALED(status) ? ", signal " + std::to_string(WTERMSIG(status)) : "") << std::endl;
  }
  std::cout << ran << " cases, " << failed << " failed" << std::endl;
  return failed == 0 ? 0 : 1;
}
