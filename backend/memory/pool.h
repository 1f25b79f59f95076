// memory/pool.h: segments and the arenas that serve from them: the default pool, or a private one (of a graph or a MemPool).
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "memory/arena.h"

namespace backplane::memory {

class Pluggable;

// Guarded by the device lock; does not call the driver.
struct Pool {
  Pool(c10::MempoolId_t pool_id, Statistics& counters) : id(pool_id), statistics(counters) {}

  Arena& arena(c10::StreamId stream) {
    if (C10_LIKELY(last != nullptr && last->stream() == stream)) return *last;
    auto& place = arenas[stream];
    if (place == nullptr) place = std::make_unique<Arena>(*this, statistics, stream);
    last = place.get();
    return *last;
  }

  bool is_private() const { return id != c10::MempoolId_t{0, 0}; }

  // Adds a segment from the driver as one block that is not free yet.
  Block* add_segment(DeviceCache* owner, c10::StreamId stream, uint64_t address, size_t size, PoolKind kind, bool oversize);

  // Adds the addresses of an expandable segment: one block without memory. The segment is removed when nothing of it is mapped.
  Block* add_expandable(DeviceCache* owner, c10::StreamId stream, uint64_t address, size_t size, PoolKind kind, uint64_t chunk);
  void remove_expandable(Segment* segment);

  // Moves all blocks into the sets: neighbours merged, statistics exact.
  void flush_recent();

  // Segments that have been entirely unused for this many frees (Block::freed_at). Such a segment can be removed from the pool.
  std::vector<Segment*> idle_segments(bool large_only, uint64_t unused_since) const;
  void remove(Segment* segment);
  Block* enter(std::unique_ptr<Segment> segment);

  size_t largest_free() const;
  size_t reserved() const;

  c10::MempoolId_t id;
  Statistics& statistics;
  bool use_on_oom = false;  // see PoolOptions
  bool no_split = false;
  const Pluggable* source = nullptr;
  int references = 0;                                     // private pools; at 0 their idle memory may be released
  std::map<uint64_t, std::unique_ptr<Segment>> segments;  // by address
  std::unordered_map<c10::StreamId, std::unique_ptr<Arena>> arenas;
  Arena* last = nullptr;
};

}  // namespace backplane::memory
