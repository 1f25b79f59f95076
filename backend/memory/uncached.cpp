// memory/uncached.cpp: frees without a cache. See Note [No caching] in memory/caching_allocator.h.
#include <backplane/kernel.h>

#include <algorithm>

#include "memory/caching_allocator.h"
#include "memory/device_cache.h"
#include "memory/last_use.h"
#include "memory/pluggable.h"
#include "runtime/watchdog.h"

namespace backplane::memory {
namespace uncached_impl {
namespace {

// Frees run in destructors: neither Ctrl-C nor an error ends the wait, and work of a failed device counts as complete. False: the
// watchdog's limit is reached, and the work continues.
bool wait_for(const c10::Stream& stream) noexcept {
  try {
    return last_use(stream)->wait(watchdog_ns());
  } catch (...) {
    return true;
  }
}

}  // namespace
}  // namespace uncached_impl

bool DeviceCache::keeps(const Pool& pool) const { return pool.is_private() || (source_.caches() && source_.plugged() == nullptr); }

const Pluggable* DeviceCache::source_of(const Pool& pool) const { return pool.source != nullptr ? pool.source : source_.plugged(); }

void DeviceCache::free_uncached(Block* block, std::vector<c10::Stream> others, const StackContext& stack) {
  Segment* const segment = block->segment;
  const c10::Stream own(c10::Stream::UNSAFE, {kDevice, device_}, segment->arena->stream());
  const bool may_call = !detail::in_host_function();
  if (source_.plugged() == nullptr || anything_captures() || !may_call) others.push_back(own);
  if (!may_call) {
    const Locked lock(*this);
    later_.push_back({block, std::move(others)});
    return decrement(event_threads_);
  }
  if (anything_captures() || !std::all_of(others.begin(), others.end(), uncached_impl::wait_for)) {
    return wait_for_others(block, others);
  }
  Removed removed;
  {
    const Locked lock(*this);
    block->events = 1;
    other_stream_done(block);
    take_idle(segment, removed, stack);
    decrement(event_threads_);
    ++releasing_;
  }
  return_to_driver(removed);
}

// Under the lock, as the next function: removes the unused parts of a segment. Its stream's work on it is complete.
void DeviceCache::take_idle(Segment* segment, Removed& removed, const StackContext& stack) {
  Arena& arena = *segment->arena;
  arena.flush_recent();
  if (segment->chunk != 0) return claim_idle_chunks_of(arena.pool(), *segment, UINT64_MAX, removed.chunks, stack);
  const Block* const first = segment->first;
  if (first->state == BlockState::free && !first->is_split()) take_out(arena.pool(), segment, removed, stack);
}

// Removed before it is freed: the driver may return the address to another thread at once.
void DeviceCache::take_out(Pool& pool, Segment* segment, Removed& removed, const StackContext& stack) {
  removed.ranges.push_back({reinterpret_cast<void*>(segment->address), segment->size, source_of(pool), segment->arena->stream()});
  if (C10_UNLIKELY(history_ != nullptr)) {
    note(HistoryEvent::Action::segment_free, pool, segment->arena->stream(), segment->address, segment->size,
         stack != nullptr ? stack : segment->context);
    dead_.push_back(std::move(segment->context));
  }
  pool.remove(segment);
}

// The caller has incremented releasing_.
void DeviceCache::return_to_driver(Removed& removed) {
  for (const auto& range : removed.ranges) {
    if (range.source == nullptr) {
      source_.segment_free(device_, range.address, range.size);
    } else {
      range.source->free(device_, range.address, range.size, range.stream);
    }
  }
  unmap_claimed(removed.chunks);
  const Locked lock(*this);
  std::erase_if(private_pools_, [](const auto& entry) { return entry.second->references == 0 && entry.second->segments.empty(); });
  decrement(releasing_);
}

}  // namespace backplane::memory
