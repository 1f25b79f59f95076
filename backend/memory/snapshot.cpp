// memory/snapshot.cpp: statistics as they are read, and the list of segments and blocks for memory_snapshot.
#include "memory/alloc_config.h"
#include "memory/device_memory.h"

namespace backplane::memory {

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::SegmentInfo;

// Reading first takes back what other streams are done with and merges what was freed, so that current values are exact.
Statistics::Values DeviceMemory::statistics() {
  collect_finished();
  const Locked lock(*this);
  flush_recent();
  statistics_.values().max_split_size = static_cast<int64_t>(alloc_config().max_split_size);
  return statistics_.values();
}

void DeviceMemory::reset_accumulated() {
  const Locked lock(*this);
  statistics_.reset_accumulated();
  fraction_rejections_ = 0;
}

void DeviceMemory::reset_peak() {
  const Locked lock(*this);
  flush_recent();
  statistics_.reset_peak();
}

namespace snapshot_impl {
namespace {

SegmentInfo describe(const Pool& pool, const Segment& segment, c10::DeviceIndex device, uint64_t frees) {
  SegmentInfo info;
  info.device = device;
  info.address = segment.address;
  info.total_size = segment.size;
  info.stream = reinterpret_cast<void*>(static_cast<intptr_t>(segment.arena->stream()));
  info.is_large = segment.kind == PoolKind::large;
  info.owner_private_pool_id = pool.id;
  info.context_when_allocated = segment.context;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    BlockInfo& part = info.blocks.emplace_back();
    part.size = block->size;
    part.allocated = block->state == BlockState::used;
    part.active = part.allocated || block->state == BlockState::waiting;
    if (part.allocated) info.allocated_size += part.size;
    if (!part.active) {
      part.gc_counter = static_cast<int32_t>(frees - block->freed_at);
      continue;
    }
    part.context_when_allocated = block->context;
    part.requested_size = block->requested;
    info.active_size += part.size;
    info.requested_size += part.requested_size;
  }
  return info;
}

}  // namespace
}  // namespace snapshot_impl

void DeviceMemory::snapshot(std::vector<SegmentInfo>& segments, std::vector<HistoryEvent>* events) {
  collect_finished();
  const Locked lock(*this);
  flush_recent();
  for (const auto& entry : pool_.segments) segments.push_back(snapshot_impl::describe(pool_, *entry.second, device_, frees_));
  for (const auto& pool : private_pools_) {
    for (const auto& entry : pool.second->segments)
      segments.push_back(snapshot_impl::describe(*pool.second, *entry.second, device_, frees_));
  }
  if (events == nullptr || history_ == nullptr) return;
  note(HistoryEvent::Action::snapshot, pool_, 0, 0, statistics_.allocated(), nullptr);
  *events = history_->events();
}

}  // namespace backplane::memory
