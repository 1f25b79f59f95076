// memory/pinned_allocator.cpp: PyTorch's host cache over pinned memory (pinned_memory.h), and the intervals for is_pinned.
//
// Note [Host frees]: PyTorch's cache calls free_block under its locks. This allocator then only queues the memory, and returns it to the
// driver when the call that caused the free (empty_cache, free, allocate) has released its locks.
#include "memory/pinned_allocator.h"

#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "memory/alloc_config.h"
#include "memory/last_use.h"
#include "memory/out_of_memory.h"
#include "memory/pinned_memory.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/event.h"
#include "runtime/options.h"
#include "runtime/overrides.h"
#include "runtime/stream.h"
#include "torch/compat.h"

namespace backplane {
namespace pinned_impl {

// Which addresses are pinned. No driver call is made under its lock.
class Intervals {
 public:
  static Intervals& instance() {
    static auto* intervals = new Intervals();
    return *intervals;
  }
  void add(void* begin, size_t bytes) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    ranges_[reinterpret_cast<uintptr_t>(begin)] = bytes;
  }
  void remove(void* begin) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    ranges_.erase(reinterpret_cast<uintptr_t>(begin));
  }
  bool contains(const void* ptr) const {
    const auto address = reinterpret_cast<uintptr_t>(ptr);
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto next = ranges_.upper_bound(address);
    return next != ranges_.begin() && address - std::prev(next)->first < std::prev(next)->second;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, size_t> ranges_;
};

using Block = at::HostBlock<c10::Stream>;
using Cache = at::CachingHostAllocatorImpl<c10::Stream, PooledEvent, Block>;

class PinnedCache : public Cache {
 public:
  std::pair<void*, void*> allocate(size_t bytes) override {
    open_driver();  // a cached block is invalid in a forked child, and after close
    auto result = Cache::allocate(bytes);
    return_to_driver();
    return result;
  }

  bool record_event(void* ptr, void* ctx, c10::Stream stream) override {
    stream_handle(stream);  // raises for a stream that does not exist: the free that queries it later cannot raise
    return Cache::record_event(ptr, ctx, stream);
  }

  void free(void* ctx) override {
    if (driver_if_open() == nullptr) return;
    Cache::free(ctx);
    return_to_driver();
  }

  void empty_cache() override {
    if (driver_if_open() == nullptr) return;
    if (auto* const release_staging = overrides().release_staging) release_staging();
    Cache::empty_cache();
    return_to_driver();
  }

  void copy_data(void* dest, const void* src, size_t bytes) const override { std::memcpy(dest, src, bytes); }

 private:
  // The base class calls these; older ones do not have the last two.
  void allocate_host_memory(size_t bytes, void** out) override {
    const auto begin = std::chrono::steady_clock::now();
    int32_t status = memory_.alloc(bytes, out);
    if (status == BP_OUT_OF_MEMORY) {
      empty_cache();
      status = memory_.alloc(bytes, out);
    }
    if (status == BP_OUT_OF_MEMORY) {
      const at::HostStats stats = getStats();
      C10_THROW_ERROR(OutOfMemoryError,
                      std::string("out of pinned host memory. Tried to allocate ") + memory::format_bytes(bytes) + "; this process has " +
                          memory::format_bytes(static_cast<size_t>(stats.allocated_bytes.current)) +
                          " pinned. The driver says: " + last_error_text() +
                          ". Pin less memory (DataLoader: pin_memory, prefetch_factor), or raise the system's limit of locked memory.");
    }
    if (status != BP_OK) throw_status(status, "host_alloc", -1, last_error_text());
    Intervals::instance().add(*out, bytes);
    const std::lock_guard<std::mutex> lock(stats_.timing_mutex_);
    stats_.host_alloc_time.increase(microseconds_since(begin));
  }

  // See Note [Host frees].
  void free_block(Block* block) override {
    Intervals::instance().remove(block->ptr_);
    const std::lock_guard<std::mutex> lock(doomed_mutex_);
    doomed_.push_back(block->ptr_);
  }

  void record_stream(std::optional<std::vector<PooledEvent>>& events, c10::Stream stream) override {
    events->push_back(memory::last_use(stream));
  }

  bool query_event(PooledEvent& event) override { return memory::is_complete(*event); }
  c10::Stream get_current_stream() const BACKPLANE_OVERRIDE_IF_PRESENT { return current_stream(); }
  // PYTORCH_ALLOC_CONF may request a thread of torch's cache, which would outlive this allocator's driver: alloc_config.cpp refuses it.
  bool pinned_use_background_threads() BACKPLANE_OVERRIDE_IF_PRESENT { return false; }
  size_t pinned_max_round_threshold() const BACKPLANE_OVERRIDE_IF_PRESENT { return memory::alloc_config().pinned_max_round; }
  size_t pinned_max_cached_size() const BACKPLANE_OVERRIDE_IF_PRESENT { return memory::alloc_config().pinned_max_cached; }
  bool stream_is_capturing(c10::Stream stream) const BACKPLANE_OVERRIDE_IF_PRESENT { return is_capturing(stream); }

  static int64_t microseconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
  }

  void return_to_driver() {
    std::vector<void*> doomed;
    {
      const std::lock_guard<std::mutex> lock(doomed_mutex_);
      if (C10_LIKELY(doomed_.empty())) return;
      doomed.swap(doomed_);
    }
    const auto begin = std::chrono::steady_clock::now();
    for (void* ptr : doomed) {
      const int32_t status = memory_.free(ptr);
      if (status != BP_OK) log_status(status, "host_free", -1, last_error_text());
    }
    const std::lock_guard<std::mutex> lock(stats_.timing_mutex_);
    stats_.host_free_time.increase(microseconds_since(begin));
  }

  memory::PinnedMemory memory_;
  std::mutex doomed_mutex_;
  std::vector<void*> doomed_;
};

void deleter(void* ctx);

class PinnedAllocator final : public at::CachingHostAllocatorInterface<PinnedCache, deleter> {};

// Never destroyed: pinned tensors may outlive static destructors.
PinnedAllocator& instance() {
  static auto* allocator = new PinnedAllocator();
  return *allocator;
}

void deleter(void* ctx) { instance().free(ctx); }

namespace {

const bool registered = [] {
  at::setHostAllocator(kDevice, &instance(), 0);
  overrides().pinned_allocator.core = []() -> c10::Allocator* { return &pinned_allocator(); };
  overrides().is_pinned.core = &is_pinned;
  return true;
}();

}  // namespace
}  // namespace pinned_impl

at::HostAllocator& pinned_allocator() { return pinned_impl::instance(); }

bool is_pinned(const void* ptr) {
  if (ptr == nullptr || driver_if_open() == nullptr) return false;
  if (pinned_impl::Intervals::instance().contains(ptr)) return true;
  const auto info = pointer_info(ptr);
  return info && (info->kind == BP_MEMORY_PINNED || info->kind == BP_MEMORY_REGISTERED);
}

}  // namespace backplane
