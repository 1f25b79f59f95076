// memory/device_cache.h: the memory of one device: allocates, frees, waits for other streams, calls the driver, and explains failures.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memory/history.h"
#include "memory/out_of_memory.h"
#include "memory/pool.h"
#include "memory/statistics.h"
#include "runtime/event.h"

namespace backplane {
class CachingAllocator;
struct PoolOptions;
}  // namespace backplane

namespace backplane::memory {

// What the profiler reports, read under the lock.
struct Usage {
  size_t block = 0;
  size_t allocated = 0;
  size_t reserved = 0;
};

class DeviceCache {
 public:
  using Filter = std::function<bool(const c10::Stream&)>;

  DeviceCache(CachingAllocator& source, c10::DeviceIndex device, const HistorySettings* history)
      : source_(source), device_(device), pool_({0, 0}, statistics_) {
    if (history != nullptr) history_ = std::make_unique<History>(*history, dead_);
  }

  c10::DeviceIndex device() const { return device_; }
  CachingAllocator& source() const { return source_; }

  // `stack` is the caller's, or NULL: see Note [Stacks].
  Block* allocate(size_t bytes, const c10::Stream& stream, StackContext stack, Usage* usage);
  void free(Block* block, StackContext stack, Usage* usage);
  void record_stream(Block* block, const c10::Stream& stream);

  void empty_cache(c10::MempoolId_t pool, const StackContext& stack);
  void set_limit(double fraction, size_t total);
  double fraction();

  Statistics::Values statistics();
  void reset_accumulated();
  void reset_peak();
  size_t reserved();
  size_t fraction_rejections();
  // Both at one moment.
  void snapshot(std::vector<c10::CachingDeviceAllocator::SegmentInfo>& segments, std::vector<HistoryEvent>* events);

  // NULL: stop, and discard. The settings live until the end of the process.
  void record_history(const HistorySettings* settings, bool clear);

  void retain_pool(c10::MempoolId_t pool, const PoolOptions& options);
  void begin_allocate_to_pool(c10::MempoolId_t pool, Filter filter, const PoolOptions& options);
  int pool_references(c10::MempoolId_t pool);
  void end_allocate_to_pool(c10::MempoolId_t pool);
  void release_pool(c10::MempoolId_t pool);
  void finish_later_frees();

 private:
  // Holds the device lock; stacks that were dropped under it are destroyed after it is released.
  class Locked {
   public:
    explicit Locked(DeviceCache& memory) : memory_(memory) { memory.mutex_.lock(); }
    Locked(const Locked&) = delete;
    ~Locked() {
      if (C10_UNLIKELY(!memory_.dead_.empty())) {
        memory_.unlock_and_release();
      } else {
        memory_.mutex_.unlock();
      }
    }

   private:
    DeviceCache& memory_;
  };
  // A freed block that another stream still uses: the event is that stream's.
  struct Waiting {
    PooledEvent event;
    c10::Stream stream;
    Block* block;
  };
  // A freed block for whose streams no event can be recorded yet: one of them was capturing a graph, or the thread may not call the driver
  // (in a launched function).
  struct Later {
    Block* block;
    std::vector<c10::Stream> streams;
  };
  struct Route {
    c10::MempoolId_t pool;
    Filter filter;
  };
  // The pool of one allocation: holds a reference, so that a private pool cannot be destroyed meanwhile.
  struct PoolUse {
    PoolUse(DeviceCache& memory, Pool& used);  // under the lock
    PoolUse(const PoolUse&) = delete;
    ~PoolUse();
    DeviceCache& owner;
    Pool& pool;
  };

  // Segments, or chunks of expandable ones, that are being returned to the driver: the cache no longer knows them.
  struct Removed {
    struct Range {
      void* address;
      size_t size;
      const Pluggable* source;
      c10::StreamId stream;
    };
    std::vector<Range> ranges;
    std::vector<Block*> chunks;
  };

  // The state of an allocation through its steps.
  struct Request {
    size_t bytes;  // requested
    size_t size;   // rounded
    const c10::Stream& stream;
    StackContext& stack;
    Usage* usage;
    OutOfMemory* report;  // NULL on the fast path, which cannot fail
  };

  void take_pool(c10::MempoolId_t id, const PoolOptions& options);
  Block* hand_out(Block* block, size_t max_split_size, Request& request);
  Block* allocate_slow(Request& request);
  Block* find_free(Pool& pool, size_t size, c10::StreamId stream);
  Block* last_resort(Request& request);
  Block* from_driver(Pool& pool, size_t segment_size, Request& request);
  Block* grow(Pool& pool, Request& request);

  // Expandable segments: expandable.cpp.
  Block* expand(Pool& pool, Request& request);
  bool reserve_segment(Pool& pool, PoolKind kind, c10::StreamId stream);
  bool claim_idle_chunks(Pool& pool, bool large_only, uint64_t unused_since, std::vector<Block*>* claimed, const StackContext& stack);
  void claim_idle_chunks_of(Pool& pool, Segment& segment, uint64_t unused_since, std::vector<Block*>& claimed, const StackContext& stack);
  void unmap_claimed(const std::vector<Block*>& claimed);
  size_t segment_size(size_t size) const;
  PoolUse pool_for(const c10::Stream& stream);
  [[noreturn]] void fail_allocation(Request& request);

  void unlock_and_release();
  void note(HistoryEvent::Action action, const Pool& pool, c10::StreamId stream, uint64_t address, size_t size, StackContext context);
  void note_handed_out(Block* block, StackContext& stack);
  void note_freed(const Block* block, HistoryEvent::Action action, StackContext stack);

  // Without caching: uncached.cpp.
  bool keeps(const Pool& pool) const;
  const Pluggable* source_of(const Pool& pool) const;
  void free_uncached(Block* block, std::vector<c10::Stream> others, const StackContext& stack);
  void take_idle(Segment* segment, Removed& removed, const StackContext& stack);
  void take_out(Pool& pool, Segment* segment, Removed& removed, const StackContext& stack);
  void return_to_driver(Removed& removed);

  void wait_for_others(Block* block, const std::vector<c10::Stream>& streams);
  void collect_finished();
  bool finish_waiting();
  void decrement(int& threads);  // under the lock
  bool wait_for_threads(const int& threads, const char* what);
  void other_stream_done(Block* block);

  void collect_garbage(size_t wanted, const StackContext& stack);
  bool release(const std::function<bool(const Pool&)>& which, bool large_only, uint64_t unused_since, const StackContext& stack);
  void flush_recent();

  CachingAllocator& source_;
  const c10::DeviceIndex device_;

  std::mutex mutex_;  // protects everything below; never held during a driver call
  Statistics statistics_;
  Pool pool_;
  std::map<c10::MempoolId_t, std::unique_ptr<Pool>> private_pools_;
  std::vector<StackContext> dead_;                    // see Locked
  std::unique_ptr<History> history_;                  // NULL while nothing is recorded
  std::shared_ptr<const std::vector<Route>> routes_;  // NULL while nothing is allocated to a private pool
  std::deque<Waiting> waiting_;                       // in the order of the frees
  std::vector<Later> later_;
  double fraction_ = 1;                    // of the device's memory: gives the limit below
  size_t limit_ = SIZE_MAX;                // of reserved bytes
  size_t on_the_way_ = 0;                  // being allocated by the driver now
  size_t fraction_rejections_ = 0;         // out-of-memory errors because of limit_
  uint64_t frees_ = 0;                     // so far: the clock of Block::freed_at
  int releasing_ = 0;                      // threads that return segments to the driver now
  int event_threads_ = 0;                  // threads that record or query events of blocks in waiting_
  std::condition_variable other_threads_;  // one of the two has become 0
};

}  // namespace backplane::memory
