// memory/caching_allocator.h: the device's allocator: what PyTorch asks of it, and what it offers beyond that.
//
// Note [Caching]: memory comes from the driver in segments, is handed out in blocks, and goes back to the driver only on empty_cache, on
// garbage collection or when the device is full. A block belongs to the stream that was current when it was allocated: freed, it is reused
// by that stream at once, in stream order; another stream that touched it must be told by recordStream, and then reuse waits for an event
// there.
//
// Note [No caching]: with caching off, or functions plugged in, an allocation outside of private pools is a segment of its own, and a free
// gives the segment back as soon as nothing in it is used. Before that it waits for the streams of the block; functions that are plugged in
// order their frees themselves, by the stream that they get, and only other streams are waited for. While a graph is captured nobody may
// wait: then the events of the streams are asked later, as in memory/waiting.cpp. Private pools cache in any case: a graph's memory is
// its own for as long as it lives.
//
// Threads: every method from any thread. No lock is held over a driver call, and none while Python could be entered. Frees work from any
// thread, at interpreter shutdown, and are no-ops in a forked child and after the driver was closed.
// Errors: c10::OutOfMemoryError with sizes and the cure; the rest as in runtime/errors.h.
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

// Of a private pool; fixed when it is first begun.
struct PoolOptions {
  bool use_on_oom = false;                    // what is free in it may serve allocations outside of it before they fail
  bool no_split = false;                      // a segment is one block
  const memory::Pluggable* source = nullptr;  // where its segments come from; NULL: as the device's
};

// A vendor derives from it to change where segments come from (segment_alloc, segment_free) or anything that is virtual, and registers its
// object with c10::SetAllocator(backplane::kDevice, &mine, 1). Such an object lives to the end of the process.
class CachingAllocator : public c10::DeviceAllocator {
 public:
  CachingAllocator();
  ~CachingAllocator() override;

  // Memory on the current device, owned by its current stream. Zero bytes: a null pointer tagged with the device.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  // Device to device, any two devices, ordered on the current stream of the destination's device.
  void copy_data(void* dest, const void* src, size_t bytes) const override;

  bool initialized() override;
  // {0, 0}: everything that is cached, on all devices. Waits for the devices' work: memory with work in flight is never given back.
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  // Ignores memory that is not this allocator's (from_blob, another process's). Throws for a stream that does not exist.
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override;
  // Zeros for a device that has not been used.
  DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  // {free, total} bytes: the driver's answer, else what this process knows.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;

  // Memory for a stream that need not be current; throws for one that does not exist. raw_delete takes what raw_alloc or raw_allocate gave;
  // it throws for another pointer.
  void* raw_alloc(size_t bytes, const c10::Stream& stream);
  static void raw_delete(void* ptr);

  void empty_cache(c10::DeviceIndex device);

  // The part of the device's memory, [0, 1], that this process may reserve; beyond it is out of memory. What it has stays.
  void set_memory_fraction(double fraction, c10::DeviceIndex device);
  double memory_fraction(c10::DeviceIndex device);
  void limit_all(double fraction);  // of every device that has been used

  // All segments with their blocks, by device and address; `stream` holds the stream's id. `events`: what was recorded, by device.
  std::vector<SegmentInfo> snapshot(std::vector<std::vector<HistoryEvent>>* events = nullptr);

  // Record stacks and events on every device from now on; nullopt: stop, and forget what was recorded. Costs one test an allocation while
  // off. `clear`: forget the events so far.
  void record_history(const std::optional<HistorySettings>& settings, bool clear);

  // Called with device, asked, total and free bytes before an out-of-memory error is thrown, without a lock. They stay for ever.
  using OutOfMemoryObserver = std::function<void(c10::DeviceIndex device, size_t asked, size_t total, size_t free)>;
  void attach_out_of_memory_observer(OutOfMemoryObserver observer);
  void tell_observers(c10::DeviceIndex device, size_t asked, size_t total, size_t free);

  // Size of the block that starts at ptr, 0 if none does: what the allocation really occupies.
  static size_t block_size(const void* ptr);

  // Whether two allocations in use lie in one allocation of the driver's, all of which may be read, and whose blocks belong to this stream.
  static bool are_neighbours(const void* a, const void* b, const c10::Stream& stream);

  // Whether freed memory is kept for the next allocation; at first it is, unless <PREFIX>_NO_MEMORY_CACHING is set. See Note [No caching].
  bool caches() const {
    const Caching now = caching_.load(std::memory_order_relaxed);
    return C10_LIKELY(now != Caching::unread) ? now == Caching::on : first_caching();
  }
  void set_caching(bool on);

  // All memory of all devices comes from these functions from now on, an allocation a call, and private pools' segments too. Throws if
  // there was an allocation before. NULL: none do.
  void plug(const memory::Pluggable* functions);
  const memory::Pluggable* plugged() const { return plugged_.load(std::memory_order_acquire); }

  // The options that a pool of this id will have on each device when it is first begun there. Ids are not used again.
  void set_pool_options(c10::MempoolId_t pool, const PoolOptions& options);
  void forget_pool_options(c10::MempoolId_t pool);
  PoolOptions pool_options(c10::MempoolId_t pool);

  // Private pools, for graphs and MemPool. Between begin and end, allocations of the streams that `filter` accepts come from the pool;
  // filter runs without a lock. begin also takes a reference that release_pool gives back; at zero, empty_cache frees the pool's memory.
  // Where several pools accept a stream, the one that began last serves it. retain_pool takes a reference without that, of a pool that need
  // not exist yet.
  void retain_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  void begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool, std::function<bool(const c10::Stream&)> filter);
  void end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  void release_pool(c10::DeviceIndex device, c10::MempoolId_t pool);
  int pool_references(c10::DeviceIndex device, c10::MempoolId_t pool);  // 0 if there is no such pool

  // After the end of a capture: memory that was freed in it, and that one of its streams had used, goes the usual way. See Note [Captures].
  void finish_captured_frees(c10::DeviceIndex device);

  // Out-of-memory errors that the memory fraction caused.
  size_t fraction_rejections(c10::DeviceIndex device);

  // Where segments come from: the driver. (Expandable segments: its bp.vmm.) segment_alloc returns NULL when the device is full and throws
  // for anything else; segment_free never throws, and gets memory that no work uses any more. Without caching segment_alloc is asked for
  // the bytes of one allocation, which segment_free gets as the multiple of 512 that counts for it.
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
  std::mutex create_mutex_;                                  // over what follows, the creation of devices, and the switching of history_
  std::vector<std::unique_ptr<HistorySettings>> histories_;  // outgrown ones, too: threads may still read them
  std::shared_ptr<const std::vector<OutOfMemoryObserver>> observers_;
  std::map<c10::MempoolId_t, PoolOptions> pool_options_;
};

// The registered allocator. Throws if a vendor registered one that is not derived from CachingAllocator.
CachingAllocator& caching_allocator();

// "key:value,key:value": PYTORCH_ALLOC_CONF overridden by <PREFIX>_ALLOC_CONF, read at first use; replaced by set_allocator_settings.
// ValueError names the known keys.
std::string allocator_settings();
void set_allocator_settings(const std::string& text);

}  // namespace backplane
