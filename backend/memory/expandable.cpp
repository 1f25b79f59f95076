// memory/expandable.cpp: expandable segments: reserved addresses for all of a device's memory, and memory that is mapped there.
//
// Note [Expandable segments]: each stream has one such segment per pool and size class, created with the driver's bp.vmm. Addresses without
// memory are a block in state unmapped; a request for which there is no free block maps chunks next to free memory, so that freed memory
// merges with its neighbours, however the sizes of a program change. Unused chunks are unmapped again. A range that a thread maps or unmaps
// is a block in state claimed, which no other thread touches: the driver is called without the lock.

#include <algorithm>

#include "memory/alloc_config.h"
#include "memory/block_index.h"
#include "memory/caching_allocator.h"
#include "memory/device_cache.h"
#include "runtime/driver.h"

namespace backplane::memory {
namespace expandable_impl {
namespace {

// Calls an entry that may be out of memory; returns false if so.
template <auto Slot, typename... Args>
bool call_unless_full(c10::DeviceIndex device, Args... args) {
  const int32_t status = try_call<Slot>(device, args...);
  if (status != BP_OK && status != BP_OUT_OF_MEMORY) throw_status(status, detail::slot_name<Slot>().c_str(), device, last_error_text());
  return status == BP_OK;
}

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

bool is(const Block* block, BlockState state) { return block != nullptr && block->state == state; }

// The first unmapped block next to which a request fits, cut to what must be mapped for it; NULL if there is none.
Block* claim_unmapped(Segment& segment, size_t size) {
  for (Block* block = segment.first; block != nullptr; block = block->next) {
    if (block->state != BlockState::unmapped) continue;
    const size_t before = is(block->previous, BlockState::free) ? block->previous->size : 0;
    const size_t after = is(block->next, BlockState::free) ? block->next->size : 0;
    if (before + block->size + after < size) continue;
    const size_t bytes = std::min<size_t>(round_up(size - std::min(before, size - 1), segment.chunk), block->size);
    if (bytes < block->size) Arena::split(block, bytes)->state = BlockState::unmapped;
    block->state = BlockState::claimed;
    return block;
  }
  return nullptr;
}

// Turns a claimed block into an unmapped one and merges it with its neighbours.
void set_unmapped(Block* block) {
  block->state = BlockState::unmapped;
  if (is(block->next, BlockState::unmapped)) Arena::absorb_next(block);
  if (is(block->previous, BlockState::unmapped)) Arena::absorb_next(block->previous);
}

// For a block in an expandable segment: where it starts, and which whole chunks in it are unused, as offsets in the segment.
struct Chunks {
  uint64_t start = 0;
  uint64_t first = 0;
  uint64_t end = 0;
};

Chunks idle_chunks(const Block& block, uint64_t unused_since) {
  if (block.state != BlockState::free || block.freed_at > unused_since) return {};
  const Segment& segment = *block.segment;
  const uint64_t start = block.address.load(std::memory_order_relaxed) - segment.address;
  return {start, round_up(start, segment.chunk), (start + block.size) / segment.chunk * segment.chunk};
}

bool has_idle_chunk(const Segment& segment, uint64_t unused_since) {
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    const Chunks idle = idle_chunks(*block, unused_since);
    if (idle.first < idle.end) return true;
  }
  return false;
}

}  // namespace
}  // namespace expandable_impl

// Creates an expandable segment for this stream if there is none. False: no addresses are left.
bool DeviceCache::reserve_segment(Pool& pool, PoolKind kind, c10::StreamId stream) {
  uint64_t granularity = 0;
  call<&bp_vmm::granularity>(device_, &granularity);
  const size_t chunk = expandable_impl::round_up(kind == PoolKind::small ? kSmallSegment : alloc_config().large_segment, granularity);
  // Somewhat more than the device's memory: gaps between used blocks occupy addresses, too.
  const uint64_t total = source_.getMemoryInfo(device_).second;
  const uint64_t bytes = expandable_impl::round_up(total + total / 8, chunk);
  uint64_t address = 0;
  if (!expandable_impl::call_unless_full<&bp_vmm::reserve>(device_, bytes, &address) || address == 0) return false;
  {
    const Locked lock(*this);
    Segment*& place = pool.arena(stream).expandable(kind);
    if (place == nullptr) {
      Block* block = pool.add_expandable(this, stream, address, bytes, kind, chunk);
      place = block->segment;
      return true;
    }
  }
  call_noexcept<&bp_vmm::release>(device_, address, bytes);  // another thread was faster
  return true;
}

// Maps memory until the request is served; NULL when the device or the limit is full. Without addresses it uses ordinary segments.
Block* DeviceCache::expand(Pool& pool, Request& request) {
  const c10::StreamId stream = request.stream.id();
  const PoolKind kind = pool_kind(request.size);
  for (;;) {
    Block* claimed = nullptr;
    Segment* segment = nullptr;
    bool full = false;  // no addresses are left
    {
      const Locked lock(*this);
      if (Block* block = find_free(pool, request.size, stream)) return hand_out(block, alloc_config().max_split_size, request);
      segment = pool.arena(stream).expandable(kind);
      if (segment != nullptr) {
        claimed = expandable_impl::claim_unmapped(*segment, request.size);
        full = claimed == nullptr;
      }
      if (claimed != nullptr) {
        request.report->limited = limit_ - std::min(limit_, statistics_.reserved() + on_the_way_) < claimed->size;
        if (request.report->limited) {
          expandable_impl::set_unmapped(claimed);
          return nullptr;
        }
        on_the_way_ += claimed->size;
      }
    }
    if (segment == nullptr && reserve_segment(pool, kind, stream)) continue;
    if (segment == nullptr || full) return from_driver(pool, segment_size(request.size), request);
    const uint64_t begin = claimed->address.load(std::memory_order_relaxed);
    const size_t wanted = claimed->size;
    size_t mapped = 0;
    const auto settle = [&] {
      const Locked lock(*this);
      on_the_way_ -= wanted;
      if (mapped < wanted) {
        Block* rest = mapped == 0 ? claimed : Arena::split(claimed, mapped);
        expandable_impl::set_unmapped(rest);
      }
      if (mapped == 0) return;
      statistics_.mapped(kind, mapped, mapped / segment->chunk, pool.id);
      segment->mapped += mapped;
      note(HistoryEvent::Action::segment_map, pool, stream, begin, mapped, request.stack);
      claimed->freed_at = frees_;
      segment->arena->add(claimed);
    };
    try {
      while (mapped < wanted && expandable_impl::call_unless_full<&bp_vmm::map>(device_, begin + mapped, segment->chunk))
        mapped += segment->chunk;
    } catch (...) {
      settle();
      throw;
    }
    if (mapped < wanted) request.report->driver_text = last_error_text();
    settle();
    if (mapped < wanted) return nullptr;
  }
}

// Claims the chunks that are unused since `unused_since`. Without a list it changes nothing, and returns whether there are any.
bool DeviceCache::claim_idle_chunks(Pool& pool, bool large_only, uint64_t unused_since, std::vector<Block*>* claimed,
                                    const StackContext& stack) {
  for (auto& entry : pool.segments) {
    Segment& segment = *entry.second;
    if (segment.chunk == 0 || (large_only && segment.kind == PoolKind::small)) continue;
    if (claimed != nullptr) {
      claim_idle_chunks_of(pool, segment, unused_since, *claimed, stack);
    } else if (expandable_impl::has_idle_chunk(segment, unused_since)) {
      return true;
    }
  }
  return claimed != nullptr && !claimed->empty();
}

void DeviceCache::claim_idle_chunks_of(Pool& pool, Segment& segment, uint64_t unused_since, std::vector<Block*>& claimed,
                                       const StackContext& stack) {
  Arena& arena = *segment.arena;
  for (Block* block = segment.first; block != nullptr; block = block->next) {
    const expandable_impl::Chunks idle = expandable_impl::idle_chunks(*block, unused_since);
    if (idle.first >= idle.end) continue;
    arena.remove_free(block);
    if (idle.first > idle.start) {
      Block* rest = Arena::split(block, idle.first - idle.start);
      arena.add_free(block);
      block = rest;
    }
    if (block->size > idle.end - idle.first) arena.add_free(Arena::split(block, idle.end - idle.first));
    block->state = BlockState::claimed;
    statistics_.unmapped(segment.kind, block->size, block->size / segment.chunk, pool.id);
    segment.mapped -= block->size;
    note(HistoryEvent::Action::segment_unmap, pool, arena.stream(), segment.address + idle.first, block->size,
         stack != nullptr ? stack : segment.context);
    claimed.push_back(block);
  }
}

// Returns claimed chunks; segments without mapped memory are released, too. A chunk that the driver fails to unmap stays claimed forever:
// nothing can be mapped there, and its segment keeps its addresses.
void DeviceCache::unmap_claimed(const std::vector<Block*>& claimed) {
  std::vector<std::pair<uint64_t, uint64_t>> empty;
  const auto cut_off = [](Block* block, uint64_t bytes) -> Block* {  // what follows them; NULL if nothing does
    if (bytes == block->size) return nullptr;
    Block* rest = Arena::split(block, bytes);
    rest->state = BlockState::claimed;
    return rest;
  };
  for (Block* block : claimed) {
    while (block != nullptr) {
      Segment& segment = *block->segment;
      const uint64_t begin = block->address.load(std::memory_order_relaxed);
      uint64_t gone = 0;
      while (gone < block->size && call_noexcept<&bp_vmm::unmap>(device_, begin + gone, segment.chunk)) gone += segment.chunk;
      const Locked lock(*this);
      Block* lost = gone == 0 ? block : cut_off(block, gone);
      if (gone != 0) expandable_impl::set_unmapped(block);
      block = lost == nullptr ? nullptr : cut_off(lost, segment.chunk);
      if (segment.first->state != BlockState::unmapped || segment.first->next != nullptr) continue;
      empty.emplace_back(segment.address, segment.size);
      Pool& pool = segment.arena->pool();
      segment.arena->expandable(segment.kind) = nullptr;
      dead_.push_back(std::move(segment.context));
      pool.remove_expandable(&segment);
    }
  }
  for (const auto& [address, bytes] : empty) call_noexcept<&bp_vmm::release>(device_, address, bytes);
}

}  // namespace backplane::memory
