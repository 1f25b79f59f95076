// memory/caching_allocator.h: the device's allocator: the interface that PyTorch requires, and what it offers beyond it.
//
// Note [Caching]: memory is allocated from the driver in segments, which are divided into blocks, and returned to the driver only on
// empty_cache, on garbage collection or when the device is full. A block belongs to the stream that was current when it was allocated: once
// freed, that stream reuses it at once, in stream order; recordStream names another stream that uses it, and reuse then waits for an event
// of that stream.
//
// Note [No caching]: with caching off, or with a pluggable allocator, an allocation outside private pools is a segment of its own, and a
// free returns the segment as soon as nothing in it is used. Before that the free waits for the streams of the block; a pluggable allocator
// orders its frees itself, by the stream that it receives, and only other streams are waited for. While a graph is captured waits are
// illegal: the events of the streams are then queried later, as in memory/waiting.cpp. Private pools always cache: a graph owns its memory
// for as long as it lives.
//
// Threads: every method from any thread. No lock is held during a driver call, or while Python could be entered. Frees work from any thread
// and at interpreter shutdown, and are no-ops in a forked child and after the driver was closed.
// Errors: c10::OutOfMemoryError with sizes and advice; others as in runtime/errors.h.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory/history.h"
#include "runtime/device.h"

namespace backplane {

namespace memory {
class DeviceCache;
class Pluggable;
}  // namespace memory

using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::SegmentInfo;

// Of a private pool; fixed when allocation to it first begins.
struct PoolOptions {
  bool use_on_oom = false;                    // before an allocation outside the pool fails, its free memory may serve it
  bool no_split = false;                      // a segment is one block
  const memory::Pluggable* source = nullptr;  // the source of its segments; NULL: the device's
};

// Memory of an owner that reuses it by itself, such as a graph: the context of a DataPtr, whose deleter is `release`.
struct BorrowedMemory {
  virtual ~BorrowedMemory() = default;
  virtual void record_stream(c10::Stream stream) = 0;

  static void release(void* context) { delete static_cast<BorrowedMemory*>(context); }
};

// A vendor derives from this class to change where segments come from (segment_alloc, segment_free) or any virtual method, and registers
// its object with c10::SetAllocator(backplane::kDevice, &mine, 1). Such an object lives until the end of the process.
class CachingAllocator : public c10::DeviceAllocator {
 public:
  CachingAllocator();
  ~CachingAllocator() override;

  // Memory on the current device, owned by its current stream. Zero bytes: a null pointer with the device.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  // Device to device, any two devices, ordered on the current stream of the destination's device.
  void copy_data(void* dest, const void* src, size_t bytes) const override;

  bool initialized() override;
  // {0, 0}: all cached memory, on all devices. Waits for the devices' work: memory that queued work uses is never returned to the driver.
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  // Ignores memory of other allocators (from_blob, another process), but for that of BorrowedMemory. Throws for a stream that does not
  // exist.
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override;
  // Zeros for a device that has not been used.
  DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  // {free, total} bytes: the driver's answer, else this process's own count.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;

  // Memory for a stream that need not be current; throws for one that does not exist. raw_delete accepts what raw_alloc or raw_allocate
  // returned; it throws for another pointer.
  void* raw_alloc(size_t bytes, const c10::Stream& stream);
  static void raw_delete(void* ptr);

  // The fraction of the device's memory, [0, 1], that this process may reserve; beyond it an allocation is out of memory. Memory that is
  // already reserved stays.
  void set_memory_fraction(double fraction, c10::DeviceIndex device);
  double memory_fraction(c10::DeviceIndex device);
  void limit_all(double fraction);  // for every device that has been used

  // All segments with their blocks, by device and address; `stream` is the stream's id. `events`: the recorded history, by device.
  std::vector<SegmentInfo> snapshot(std::vector<std::vector<HistoryEvent>>* events = nullptr);

  // Record stacks and events on every device from now on; nullopt: stop, and discard what was recorded. Costs one test per allocation while
  // off. `clear`: discard the events so far.
  void record_history(const std::optional<HistorySettings>& settings, bool clear);

  // Called with device, requested, total and free bytes before an out-of-memory error is thrown, without a lock. Observers are never
  // removed.
  using OutOfMemoryObserver = std::function<void(c10::DeviceIndex device, size_t asked, size_t total, size_t free)>;
  void attach_out_of_memory_observer(OutOfMemoryObserver observer);
  void notify_observers(c10::DeviceIndex device, size_t asked, size_t total, size_t free);

  // Size of the block that starts at ptr, 0 if there is none: the memory that the allocation occupies.
  static size_t block_size(const void* ptr);

  // The id of the private pool of a live allocation; {0, 0} outside of private pools, and for other pointers.
  static c10::MempoolId_t pool_of(const void* ptr);

  // Whether two live allocations are in one allocation of the driver, all of which may be read, and their blocks belong to this stream.
  static bool are_neighbours(const void* a, const void* b, const c10::Stream& stream);

  // Whether freed memory is kept for later allocations; initially it is, unless <PREFIX>_NO_MEMORY_CACHING is set. See Note [No caching].
  bool caches() const {
    const Caching now = caching_.load(std::memory_order_relaxed);
    return C10_LIKELY(now != Caching::unread) ? now == Caching::on : first_caching();
  }
  void set_caching(bool on);

  // All memory of all devices, including segments of private pools, comes from these functions from now on, one call per allocation. Throws
  // after the first allocation. NULL: no functions.
  void plug(const memory::Pluggable* functions);
  const memory::Pluggable* plugged() const { return plugged_.load(std::memory_order_acquire); }

  // The options of the pool with this id on each device, set before allocation to it first begins there. Ids are not reused.
  void set_pool_options(c10::MempoolId_t pool, const PoolOptions& options);
  void forget_pool_options(c10::MempoolId_t pool);
  PoolOptions pool_options(c10::MempoolId_t pool);

  // Private pools, for graphs and MemPool. Between begin and end, allocations of the streams that `filter` accepts come from the pool;
  // filter runs without a lock. begin also takes a reference that release_pool drops; at zero, empty_cache frees the pool's memory. Where
  // several pools accept a stream, the one that began last serves it. retain_pool only takes a reference, to a pool that need not exist
  // yet.
  void retain_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  void begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool, std::function<bool(const c10::Stream&)> filter);
  void end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  void release_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  int pool_references(c10::DeviceIndex device, c10::MempoolId_t pool);  // 0 if there is no such pool

  // After the end of a capture: frees in the usual way what was freed during it and used by one of its streams. See Note [Captures].
  void finish_captured_frees(c10::DeviceIndex device);

  // The number of out-of-memory errors that the memory fraction caused.
  size_t fraction_rejections(c10::DeviceIndex device);

  // Where segments come from: the driver. (Expandable segments: its bp.vmm.) segment_alloc returns NULL when the device is full and throws
  // for anything else; segment_free never throws, and gets memory that no work uses any more. Without caching, segment_alloc gets the size
  // of one allocation, and segment_free the multiple of 512 that is counted for it.
  virtual void* segment_alloc(c10::DeviceIndex device, size_t bytes);
  virtual void segment_free(c10::DeviceIndex device, void* ptr, size_t bytes) noexcept;

 private:
  enum class Caching : uint8_t { unread, on, off };

  bool first_caching() const;
  void* allocate_for(size_t bytes, const c10::Stream& stream);
  memory::DeviceCache& device_memory(c10::DeviceIndex device);
  memory::DeviceCache* device_memory_if_used(c10::DeviceIndex device) const;
  static void limit_to(memory::DeviceCache& owner, double fraction);

  std::array<std::atomic<memory::DeviceCache*>, kMaxDevices> devices_{};
  std::atomic<const HistorySettings*> history_{nullptr};
  mutable std::atomic<Caching> caching_{Caching::unread};
  std::atomic<const memory::Pluggable*> plugged_{nullptr};
  std::mutex create_mutex_;                                  // protects what follows, the creation of devices, and switching history_
  std::vector<std::unique_ptr<HistorySettings>> histories_;  // including replaced ones: threads may still read them
  std::shared_ptr<const std::vector<OutOfMemoryObserver>> observers_;
  std::map<c10::MempoolId_t, PoolOptions> pool_options_;
};

// The registered allocator. Throws if a vendor registered one that does not derive from CachingAllocator.
CachingAllocator& caching_allocator();

// Replaces the settings of PYTORCH_ALLOC_CONF and <PREFIX>_ALLOC_CONF (alloc_config.h) by "key:value,key:value". ValueError names the
// supported keys.
void set_allocator_settings(const std::string& text);

}  // namespace backplane
