// memory/arena.h: the free blocks of one stream: a front cache of exact sizes over best-fit sets that split and merge.
//
// Note [Front cache]: programs free and allocate the same sizes again and again. A freed block stays whole for some time, in a list of its
// exact size, where it is found without search, split or merge. When the sets have no block for a request, and before memory is allocated
// from the driver or returned to it, the lists are emptied into the sets: fragmentation is then that of plain best fit.
#pragma once

#include <array>
#include <set>

#include "memory/block.h"
#include "memory/statistics.h"

namespace backplane::memory {

struct AllocConfig;
struct Pool;

// Guarded by the device lock; does not call the driver.
class Arena {
 public:
  Arena(Pool& pool, Statistics& statistics, c10::StreamId stream) : pool_(pool), statistics_(statistics), stream_(stream) {}

  Pool& pool() const { return pool_; }
  c10::StreamId stream() const { return stream_; }

  // A recently freed block of exactly this size, or NULL.
  Block* take_recent(size_t size) {
    const size_t i = slot(size);
    for (Slot* s : {&recent_[i], &recent_[i ^ 1]}) {
      if (s->size == size && s->head != nullptr) {
        Block* block = s->head;
        s->head = block->next_recent;
        return block;
      }
    }
    return nullptr;
  }

  void put_recent(Block* block, uint64_t freed_at) {
    const size_t i = slot(block->size);
    Slot* s = &recent_[i];
    if (s->head != nullptr && s->size != block->size) {
      s = &recent_[i ^ 1];
      if (s->head != nullptr && s->size != block->size) empty(*s);
    }
    s->size = block->size;
    block->state = BlockState::recent;
    block->freed_at = freed_at;
    block->next_recent = s->head;
    s->head = block;
  }

  void flush_recent();

  // The smallest free block that serves the request, cut to size; NULL if there is none.
  Block* best_fit(size_t size, const AllocConfig& config);

  // Adds a new segment's only block: cut to size and returned; the rest is free.
  Block* cut(Block* block, size_t size, size_t max_split_size);

  // Removes a free block from the sets: its memory returns to the driver.
  void remove_free(Block* block);
  void add_free(Block* block);
  void add(Block* block) { merge(block); }  // new memory: becomes free, merged with its free neighbours

  // This stream's expandable segment, or NULL.
  Segment*& expandable(PoolKind kind) { return expandable_[static_cast<size_t>(kind) - 1]; }

  static Block* split(Block* block, size_t size);  // cuts the tail off and returns it
  static void absorb_next(Block* block);

  size_t largest_free() const;

 private:
  struct Slot {
    size_t size = 0;
    Block* head = nullptr;
  };
  struct Order {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size
                                : a->address.load(std::memory_order_relaxed) < b->address.load(std::memory_order_relaxed);
    }
    bool operator()(const Block* a, size_t size) const { return a->size < size; }
    bool operator()(size_t size, const Block* a) const { return size < a->size; }
  };
  using FreeSet = std::set<Block*, Order>;

  static constexpr size_t kSlots = 256;
  static size_t slot(size_t size) { return static_cast<size_t>((size >> 9) * 0x9E3779B97F4A7C15ull >> 56); }

  FreeSet& free_set(PoolKind kind) { return free_[static_cast<size_t>(kind) - 1]; }
  void empty(Slot& slot);
  void merge(Block* block);

  Pool& pool_;
  Statistics& statistics_;
  c10::StreamId stream_;
  std::array<Slot, kSlots> recent_{};
  std::array<FreeSet, 2> free_;
  std::array<Segment*, 2> expandable_{};
};

}  // namespace backplane::memory
