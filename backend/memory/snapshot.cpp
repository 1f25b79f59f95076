// memory/snapshot.cpp: reads statistics, and the list of segments and blocks for memory_snapshot.
#include "memory/alloc_config.h"
#include "memory/device_cache.h"

namespace backplane::memory {

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::SegmentInfo;

// Reading first reclaims what other streams no longer use and merges freed blocks, so that current values are exact.
Statistics::Values DeviceCache::statistics() {
  collect_finished();
  const Locked lock(*this);
  flush_recent();
  statistics_.values().max_split_size = static_cast<int64_t>(alloc_config().max_split_size);
  return statistics_.values();
}

void DeviceCache::reset_accumulated() {
  const Locked lock(*this);
  statistics_.reset_accumulated();
  fraction_rejections_ = 0;
}

void DeviceCache::reset_peak() {
  const Locked lock(*this);
  flush_recent();
  statistics_.reset_peak();
}

namespace snapshot_impl {
namespace {

void add_block(SegmentInfo& info, const Block& block, uint64_t frees) {
  BlockInfo& part = info.blocks.emplace_back();
  part.size = block.size;
  part.allocated = block.state == BlockState::used;
  part.active = part.allocated || block.state == BlockState::waiting;
  info.total_size += part.size;
  if (part.allocated) info.allocated_size += part.size;
  if (!part.active) {
    part.gc_counter = static_cast<int32_t>(frees - block.freed_at);
    return;
  }
  part.context_when_allocated = block.context;
  part.requested_size = block.requested;
  info.active_size += part.size;
  info.requested_size += part.requested_size;
}

// An expandable segment is one entry for each of its mapped ranges.
void describe(const Pool& pool, const Segment& segment, c10::DeviceIndex device, uint64_t frees, std::vector<SegmentInfo>& out) {
  bool in_run = false;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    const bool memory = block->state != BlockState::unmapped && block->state != BlockState::claimed;
    if (memory && !in_run) {
      SegmentInfo& info = out.emplace_back();
      info.device = device;
      info.address = block->address.load(std::memory_order_relaxed);
      info.stream = reinterpret_cast<void*>(static_cast<intptr_t>(segment.arena->stream()));
      info.is_large = segment.kind == PoolKind::large;
      info.is_expandable = segment.chunk != 0;
      info.owner_private_pool_id = pool.id;
      info.context_when_allocated = segment.context;
    }
    if (memory) add_block(out.back(), *block, frees);
    in_run = memory;
  }
}

}  // namespace
}  // namespace snapshot_impl

void DeviceCache::snapshot(std::vector<SegmentInfo>& segments, std::vector<HistoryEvent>* events) {
  collect_finished();
  const Locked lock(*this);
  flush_recent();
  const auto add = [&](const Pool& pool) {
    for (const auto& entry : pool.segments) snapshot_impl::describe(pool, *entry.second, device_, frees_, segments);
  };
  add(pool_);
  for (const auto& pool : private_pools_) add(*pool.second);
  if (events == nullptr || history_ == nullptr) return;
  note(HistoryEvent::Action::snapshot, pool_, 0, 0, statistics_.allocated(), nullptr);
  *events = history_->events();
}

}  // namespace backplane::memory
