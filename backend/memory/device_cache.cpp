// memory/device_cache.cpp: the steps of an allocation: front cache, finished events, best fit, the driver, releasing the cache, the error.
#include "memory/device_cache.h"

#include <algorithm>

#include "memory/alloc_config.h"
#include "memory/caching_allocator.h"
#include "memory/ipc.h"
#include "memory/pluggable.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"

namespace backplane::memory {

Block* DeviceCache::hand_out(Block* block, size_t max_split_size, Request& request) {
  block->state = BlockState::used;
  block->requested = request.bytes;
  statistics_.handed_out(block->segment->kind, block->size, request.bytes);
  block->oversize = block->size >= max_split_size;
  if (C10_UNLIKELY(block->oversize)) statistics_.oversize_handed_out();
  if (C10_UNLIKELY(history_ != nullptr)) note_handed_out(block, request.stack);
  *request.usage = {block->size, statistics_.allocated(), statistics_.reserved()};
  return block;
}

Block* DeviceCache::allocate(size_t bytes, const c10::Stream& stream, StackContext stack, Usage* usage) {
  const AllocConfig& config = alloc_config();
  Request request{bytes, config.round(bytes), stream, stack, usage, nullptr};
  {
    const Locked lock(*this);
    if (C10_LIKELY(routes_ == nullptr && source_.caches())) {  // a pluggable allocator leaves no free block to find
      Block* block = pool_.arena(stream.id()).take_recent(request.size);
      if (C10_LIKELY(block != nullptr)) return hand_out(block, config.max_split_size, request);
    }
  }
  return allocate_slow(request);
}

// A request that the front cache did not serve. Each step releases the lock, so another thread may take what a step frees.
Block* DeviceCache::allocate_slow(Request& request) {
  OutOfMemory report;
  request.report = &report;
  const size_t size = request.size;
  if (size < request.bytes) fail_allocation(request);  // rounding overflowed
  collect_finished();
  const PoolUse use = pool_for(request.stream);
  Pool& pool = use.pool;
  const auto try_free = [&]() -> Block* {
    if (C10_UNLIKELY(!keeps(pool))) return nullptr;
    const Locked lock(*this);
    Block* block = find_free(pool, size, request.stream.id());
    return block == nullptr ? nullptr : hand_out(block, alloc_config().max_split_size, request);
  };
  if (Block* block = try_free()) return block;
  const uint64_t largest = device_properties(device_).max_allocation;
  if (largest != 0 && size > largest) {
    request.report->largest_allocation = largest;
    fail_allocation(request);
  }
  collect_garbage(segment_size(size), request.stack);
  if (Block* block = grow(pool, request)) return block;
  {
    const Locked lock(*this);
    ++statistics_.values().num_alloc_retries;
  }
  ipc_collect();  // memory that other processes have released
  // Other threads may take what one attempt frees: repeat while there was something to free.
  constexpr int kMostTries = 64;
  for (int i = 0; i < kMostTries; ++i) {
    const bool waited = finish_waiting();
    if (Block* block = try_free()) return block;
    const bool released = release([](const Pool& p) { return p.references == 0; }, false, UINT64_MAX, request.stack);
    if (Block* block = grow(pool, request)) return block;
    // A shared segment does not fit: a segment of the requested size may.
    if (segment_size(size) > size && !alloc_config().expandable_segments) {
      if (Block* block = from_driver(pool, size, request)) return block;
    }
    if (!waited && !released) break;
  }
  if (Block* block = last_resort(request)) return block;
  report.captures = anything_captures();
  fail_allocation(request);
}

// Free memory in pools that were created with use_on_oom.
Block* DeviceCache::last_resort(Request& request) {
  const Locked lock(*this);
  for (auto& entry : private_pools_) {
    if (!entry.second->use_on_oom) continue;
    if (Block* block = find_free(*entry.second, request.size, request.stream.id())) {
      return hand_out(block, alloc_config().max_split_size, request);
    }
  }
  return nullptr;
}

Block* DeviceCache::find_free(Pool& pool, size_t size, c10::StreamId stream) {
  Arena& arena = pool.arena(stream);
  const AllocConfig& config = alloc_config();
  Block* block = arena.take_recent(size);
  if (block == nullptr) block = arena.best_fit(size, config);
  if (block == nullptr) {
    arena.flush_recent();
    block = arena.best_fit(size, config);
  }
  return block;
}

size_t DeviceCache::segment_size(size_t size) const {
  size_t wanted = kSmallSegment;
  const AllocConfig& config = alloc_config();
  if (size > kSmallLimit)
    wanted = size < config.shared_limit() ? config.large_segment : (size + kLargeRound - 1) / kLargeRound * kLargeRound;
  const uint64_t largest = device_properties(device_).max_allocation;
  return largest != 0 && wanted > largest ? size : std::max(wanted, size);
}

// Allocates from the driver; NULL if there is no room.
Block* DeviceCache::grow(Pool& pool, Request& request) {
  if (C10_UNLIKELY(!keeps(pool))) return from_driver(pool, request.size, request);
  if (alloc_config().expandable_segments && !pool.no_split && source_of(pool) == nullptr) return expand(pool, request);
  return from_driver(pool, segment_size(request.size), request);
}

// A block of a new segment, or NULL if the driver or the limit has no room for one.
Block* DeviceCache::from_driver(Pool& pool, size_t segment_size, Request& request) {
  {
    const Locked lock(*this);
    request.report->limited = limit_ - std::min(limit_, statistics_.reserved() + on_the_way_) < segment_size;
    if (request.report->limited) return nullptr;
    on_the_way_ += segment_size;
  }
  void* address = nullptr;
  const auto arrived = [&] {
    on_the_way_ -= segment_size;
    return address != nullptr;
  };
  const Pluggable* const source = source_of(pool);
  // Without caching the driver is asked only for what copies and the atomics of kernels, which are of whole words, may touch: tools that
  // check memory see the accesses beyond it.
  const size_t unit = std::max<uint32_t>(device_properties(device_).copy_alignment, sizeof(uint32_t));
  const size_t wanted = keeps(pool) ? segment_size : std::min(segment_size, (request.bytes + unit - 1) / unit * unit);
  try {
    address = source == nullptr ? source_.segment_alloc(device_, wanted) : source->alloc(device_, segment_size, request.stream.id());
  } catch (...) {
    const Locked lock(*this);
    arrived();
    throw;
  }
  if (address == nullptr)
    request.report->driver_text = source == nullptr ? last_error_text() : "the pluggable allocator returned no memory";
  const Locked lock(*this);
  if (!arrived()) return nullptr;
  const size_t max_split_size = alloc_config().max_split_size;
  const bool oversize = request.size >= max_split_size;
  const c10::StreamId stream = request.stream.id();
  Block* block = pool.add_segment(this, stream, reinterpret_cast<uint64_t>(address), segment_size, pool_kind(request.size), oversize);
  block->freed_at = frees_;
  if (C10_UNLIKELY(history_ != nullptr)) {
    block->segment->context = request.stack;
    note(HistoryEvent::Action::segment_alloc, pool, stream, block->segment->address, segment_size, request.stack);
  }
  block = block->segment->arena->cut(block, request.size, max_split_size);
  return hand_out(block, max_split_size, request);
}

void DeviceCache::free(Block* block, StackContext stack, Usage* usage) {
  std::unique_ptr<std::vector<c10::Stream>> others;
  bool uncached = false;
  {
    const Locked lock(*this);
    TORCH_CHECK(block->state == BlockState::used, "double free of ", block->pointer(), " on ", device_name(), ":",
                static_cast<int>(device_));
    const PoolKind kind = block->segment->kind;
    const size_t size = block->size;
    statistics_.freed(kind, size, block->requested);
    if (C10_UNLIKELY(block->oversize)) {
      statistics_.oversize_freed();
      block->oversize = false;
    }
    *usage = {size, statistics_.allocated(), statistics_.reserved()};
    if (C10_UNLIKELY(history_ != nullptr)) note_freed(block, HistoryEvent::Action::free_requested, stack);
    const bool kept = keeps(block->segment->arena->pool());
    if (C10_LIKELY(block->other_streams == nullptr && kept)) {
      statistics_.inactive(kind, size);
      if (C10_UNLIKELY(history_ != nullptr)) {
        note_freed(block, HistoryEvent::Action::free_completed, std::move(stack));
        dead_.push_back(std::move(block->context));
      }
      block->segment->arena->put_recent(block, ++frees_);
      return;
    }
    block->state = BlockState::waiting;
    others = std::move(block->other_streams);
    ++event_threads_;
    uncached = !kept;
  }
  if (C10_LIKELY(!uncached)) return wait_for_others(block, *others);
  free_uncached(block, others == nullptr ? std::vector<c10::Stream>() : std::move(*others), stack);
}

// Returns idle segments of some pools to the driver. The stream that owned their blocks may still use them, and may have been destroyed
// meanwhile, so this waits for the whole device: a block that was free before the wait, and still is after it, is not in use. Returns
// whether there was an idle segment.
bool DeviceCache::release(const std::function<bool(const Pool&)>& which, bool large_only, uint64_t unused_since,
                          const StackContext& stack) {
  if (anything_captures()) return false;  // waits are illegal, and memory that a graph uses looks idle
  // Other threads are about to return memory, too, which takes a driver call or two.
  const bool progress = wait_for_threads(releasing_, "free (of cached memory, by another thread)");
  const auto for_each_pool = [&](const std::function<void(Pool&)>& visit) {
    if (which(pool_)) visit(pool_);
    for (auto& entry : private_pools_) {
      if (which(*entry.second)) visit(*entry.second);
    }
  };
  const auto for_each_idle = [&](const std::function<void(Pool&, Segment*)>& visit) {
    for_each_pool([&](Pool& pool) {
      pool.flush_recent();
      for (Segment* segment : pool.idle_segments(large_only, unused_since)) visit(pool, segment);
    });
  };
  {
    const Locked lock(*this);
    unused_since = std::min(unused_since, frees_);
    bool any = false;
    for_each_idle([&](Pool&, Segment*) { any = true; });
    for_each_pool([&](Pool& pool) { any = any || claim_idle_chunks(pool, large_only, unused_since, nullptr, nullptr); });
    if (!any) return progress;
  }
  synchronize_device(device_);
  Removed removed;
  {
    const Locked lock(*this);
    for_each_idle([&](Pool& pool, Segment* segment) { take_out(pool, segment, removed, stack); });
    for_each_pool([&](Pool& pool) { claim_idle_chunks(pool, large_only, unused_since, &removed.chunks, stack); });
    ++releasing_;
  }
  return_to_driver(removed);
  return true;
}

void DeviceCache::empty_cache(c10::MempoolId_t id, const StackContext& stack) {
  finish_waiting();
  const bool all = id == c10::MempoolId_t{0, 0};
  release([&](const Pool& pool) { return all ? pool.references == 0 : pool.id == id; }, false, UINT64_MAX, stack);
}

// Before a new segment: while more than the threshold's fraction of the limit is reserved, frees segments that are unused for longer than
// the average.
void DeviceCache::collect_garbage(size_t wanted, const StackContext& stack) {
  const double threshold = alloc_config().garbage_collection_threshold;
  if (threshold == 0) return;
  uint64_t unused_since = 0;
  {
    const Locked lock(*this);
    const uint64_t total = device_properties(device_).total_memory;
    const size_t limit = total == 0 ? limit_ : std::min<size_t>(limit_, total);
    if (static_cast<double>(statistics_.reserved() + wanted) <= threshold * static_cast<double>(limit)) return;
    pool_.flush_recent();
    const auto idle = pool_.idle_segments(/*large_only=*/true, UINT64_MAX);
    if (idle.empty()) return;
    for (const Segment* segment : idle) unused_since += segment->first->freed_at;
    unused_since /= idle.size();
  }
  release([](const Pool& pool) { return !pool.is_private(); }, true, unused_since, stack);
}

void DeviceCache::flush_recent() {
  pool_.flush_recent();
  for (auto& entry : private_pools_) entry.second->flush_recent();
}

void DeviceCache::set_limit(double fraction, size_t total) {
  const Locked lock(*this);
  fraction_ = fraction;
  limit_ = fraction == 1 ? SIZE_MAX : static_cast<size_t>(fraction * static_cast<double>(total));
}

double DeviceCache::fraction() {
  const Locked lock(*this);
  return fraction_;
}

size_t DeviceCache::reserved() {
  const Locked lock(*this);
  return statistics_.reserved();
}

size_t DeviceCache::fraction_rejections() {
  const Locked lock(*this);
  return fraction_rejections_;
}

void DeviceCache::fail_allocation(Request& request) {
  OutOfMemory& report = *request.report;
  report.asked = request.bytes;
  const auto [free_bytes, total_bytes] = source_.getMemoryInfo(device_);
  {
    const Locked lock(*this);
    ++statistics_.values().num_ooms;
    if (report.limited) ++fraction_rejections_;
    flush_recent();
    report.allocated = statistics_.allocated();
    report.reserved = statistics_.reserved();
    report.limit = limit_;
    report.largest_free = pool_.largest_free();
    report.can_expand = !alloc_config().expandable_segments && open_driver().vmm != nullptr;
    for (const auto& entry : private_pools_) report.private_reserved += entry.second->reserved();
    note(HistoryEvent::Action::out_of_memory, pool_, request.stream.id(), free_bytes, request.bytes, request.stack);
  }
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(report.asked), report.allocated, report.reserved, c10::Device(kDevice, device_));
  source_.notify_observers(device_, request.bytes, total_bytes, free_bytes);
  throw_out_of_memory(device_, report, {free_bytes, total_bytes});
}

}  // namespace backplane::memory
