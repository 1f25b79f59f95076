// memory/arena.cpp: best fit, split and merge.
#include "memory/arena.h"

#include <algorithm>

#include "memory/alloc_config.h"
#include "memory/block_index.h"
#include "memory/pool.h"

namespace backplane::memory {

void Arena::empty(Slot& slot) {
  while (slot.head != nullptr) {
    Block* block = slot.head;
    slot.head = block->next_recent;
    block->next_recent = nullptr;
    merge(block);
  }
}

void Arena::flush_recent() {
  for (Slot& slot : recent_) empty(slot);
}

void Arena::add_free(Block* block) {
  block->state = BlockState::free;
  free_set(block->segment->kind).insert(block);
  if (block->is_split()) statistics_.split_free_added(block->segment->kind, block->size);
}

void Arena::remove_free(Block* block) {
  if (block->is_split()) statistics_.split_free_removed(block->segment->kind, block->size);
  free_set(block->segment->kind).erase(block);
}

void Arena::absorb_next(Block* block) {
  Block* gone = block->next;
  block->size += gone->size;
  block->freed_at = std::max(block->freed_at, gone->freed_at);
  block->next = gone->next;
  if (block->next != nullptr) block->next->previous = block;
  BlockIndex::instance().remove(gone);
}

// The lower block survives, so a segment's first block stays its first.
void Arena::merge(Block* block) {
  if (block->next != nullptr && block->next->state == BlockState::free) {
    remove_free(block->next);
    absorb_next(block);
  }
  if (block->previous != nullptr && block->previous->state == BlockState::free) {
    block = block->previous;
    remove_free(block);
    absorb_next(block);
  }
  add_free(block);
}

Block* Arena::cut(Block* block, size_t size, size_t max_split_size) {
  const size_t rest = block->size - size;
  if (C10_UNLIKELY(pool_.no_split)) return block;
  const bool any_size = block->segment->kind == PoolKind::small || block->segment->chunk != 0;
  const bool worth_it = any_size ? rest >= kMinBlock : size < max_split_size && rest > kSmallLimit;
  if (!worth_it) return block;
  add_free(split(block, size));
  return block;
}

Block* Arena::split(Block* block, size_t size) {
  Block* tail = BlockIndex::instance().create(block->address.load(std::memory_order_relaxed) + size);
  tail->size = block->size - size;
  tail->segment = block->segment;
  tail->freed_at = block->freed_at;
  tail->previous = block;
  tail->next = block->next;
  if (tail->next != nullptr) tail->next->previous = tail;
  block->next = tail;
  block->size = size;
  return tail;
}

Block* Arena::best_fit(size_t size, const AllocConfig& config) {
  FreeSet& set = free_set(pool_kind(size));
  const auto found = set.lower_bound(size);
  if (found == set.end()) return nullptr;
  Block* block = *found;
  // A large block that must not be split serves only requests of nearly its size.
  const bool whole = block->segment->chunk == 0 && (size < config.max_split_size ? block->size >= config.max_split_size
                                                                                 : block->size >= size + config.non_split_rounding);
  if (whole) return nullptr;
  remove_free(block);
  return cut(block, size, config.max_split_size);
}

size_t Arena::largest_free() const {
  size_t largest = 0;
  for (const FreeSet& set : free_) {
    if (!set.empty()) largest = std::max(largest, (*set.rbegin())->size);
  }
  return largest;
}

}  // namespace backplane::memory
