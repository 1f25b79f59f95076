// memory/block.h: the pieces that device memory is handed out in: segments from the driver, cut into blocks.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace backplane::memory {

// The sizes that CUDA users know.
constexpr size_t kMinBlock = 512;                // every block is a multiple
constexpr size_t kSmallLimit = size_t{1} << 20;  // up to here a request comes from a small segment
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLargeRound = size_t{2} << 20;  // a segment of one request's own is rounded up to this; the rest: AllocConfig

// Values index c10's StatArray, whose element 0 is the sum of both.
enum class PoolKind : uint8_t { small = 1, large = 2 };

inline PoolKind pool_kind(size_t size) { return size <= kSmallLimit ? PoolKind::small : PoolKind::large; }

enum class BlockState : uint8_t {
  used,      // handed out
  recent,    // free, whole, in the arena's front cache; neighbours are not merged yet
  free,      // free, merged, in the arena's best-fit set
  unmapped,  // of an expandable segment: addresses without memory
  claimed,   // of one: being mapped or unmapped by a thread, or lost since the driver failed to unmap it
  waiting,   // freed by its owner, still used by other streams: events are outstanding
  spare      // no memory: an object waiting for its next use
};

class Arena;
class DeviceCache;

struct Block;

// One allocation of the driver's, or the addresses of an expandable segment (expandable.h).
struct Segment {
  DeviceCache* owner = nullptr;
  Arena* arena = nullptr;  // whose stream its blocks belong to
  uint64_t address = 0;
  size_t size = 0;
  PoolKind kind = PoolKind::small;
  bool oversize = false;  // taken while max_split_size was not above its size
  uint64_t chunk = 0;     // of an expandable segment: bytes that are mapped at once; else 0
  uint64_t mapped = 0;    // of one: bytes with memory
  Block* first = nullptr;
  std::shared_ptr<c10::GatheredContext> context;  // the stack that took it, if that is recorded
};

// The device lock guards every field but address and index_next (block_index.h). Objects are recycled, never destroyed.
struct Block {
  std::atomic<uint64_t> address{0};
  std::atomic<Block*> index_next{nullptr};
  size_t size = 0;
  size_t requested = 0;
  Segment* segment = nullptr;
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  Block* next_recent = nullptr;  // list link of the front cache
  uint64_t freed_at = 0;         // latest free of its bytes, by the device's count of frees
  uint32_t events = 0;           // outstanding, in state waiting
  BlockState state = BlockState::spare;
  bool oversize = false;                                    // as in Segment, when it was handed out
  std::unique_ptr<std::vector<c10::Stream>> other_streams;  // from record_stream; NULL for nearly all blocks
  std::shared_ptr<c10::GatheredContext> context;            // the stack that allocated it, if that is recorded

  void* pointer() const { return reinterpret_cast<void*>(address.load(std::memory_order_relaxed)); }
  // A free part of a segment that cannot go back to the driver by itself; expandable segments give chunks back.
  bool is_split() const { return segment->chunk == 0 && (previous != nullptr || next != nullptr); }
};

}  // namespace backplane::memory
