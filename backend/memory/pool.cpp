// memory/pool.cpp: adds segments to a pool and removes them.
#include "memory/pool.h"

#include <algorithm>

#include "memory/block_index.h"

namespace backplane::memory {
namespace {

std::unique_ptr<Segment> new_segment(DeviceCache* owner, Arena* arena, uint64_t address, size_t size, PoolKind kind) {
  auto segment = std::make_unique<Segment>();
  segment->owner = owner;
  segment->arena = arena;
  segment->address = address;
  segment->size = size;
  segment->kind = kind;
  return segment;
}

}  // namespace

Block* Pool::add_segment(DeviceCache* owner, c10::StreamId stream, uint64_t address, size_t size, PoolKind kind, bool oversize) {
  std::unique_ptr<Segment> segment = new_segment(owner, &arena(stream), address, size, kind);
  segment->oversize = oversize;
  statistics.segment_added(kind, size, id, oversize);
  return enter(std::move(segment));
}

Block* Pool::add_expandable(DeviceCache* owner, c10::StreamId stream, uint64_t address, size_t size, PoolKind kind, uint64_t chunk) {
  std::unique_ptr<Segment> segment = new_segment(owner, &arena(stream), address, size, kind);
  segment->chunk = chunk;
  statistics.addresses_reserved(kind);
  Block* block = enter(std::move(segment));
  block->state = BlockState::unmapped;
  return block;
}

void Pool::remove_expandable(Segment* segment) {
  statistics.addresses_released(segment->kind);
  BlockIndex::instance().remove(segment->first);
  segments.erase(segment->address);
}

Block* Pool::enter(std::unique_ptr<Segment> segment) {
  Block* block = BlockIndex::instance().create(segment->address);
  block->size = segment->size;
  block->segment = segment.get();
  segment->first = block;
  segments.emplace(segment->address, std::move(segment));
  return block;
}

void Pool::flush_recent() {
  for (auto& entry : arenas) entry.second->flush_recent();
}

std::vector<Segment*> Pool::idle_segments(bool large_only, uint64_t unused_since) const {
  std::vector<Segment*> idle;
  for (const auto& entry : segments) {
    const Block* block = entry.second->first;
    if (entry.second->chunk != 0) continue;  // DeviceCache::claim_idle_chunks
    if (block->state != BlockState::free || block->is_split() || block->freed_at > unused_since) continue;
    if (!large_only || entry.second->kind == PoolKind::large) idle.push_back(entry.second.get());
  }
  return idle;
}

void Pool::remove(Segment* segment) {
  segment->arena->remove_free(segment->first);
  statistics.segment_removed(segment->kind, segment->size, id, segment->oversize);
  BlockIndex::instance().remove(segment->first);
  segments.erase(segment->address);
}

size_t Pool::reserved() const {
  size_t sum = 0;
  for (const auto& entry : segments) sum += entry.second->chunk == 0 ? entry.second->size : entry.second->mapped;
  return sum;
}

size_t Pool::largest_free() const {
  size_t largest = 0;
  for (const auto& entry : arenas) largest = std::max(largest, entry.second->largest_free());
  return largest;
}

}  // namespace backplane::memory
