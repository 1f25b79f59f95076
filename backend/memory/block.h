// memory/block.h: the units of device memory: segments from the driver, divided into blocks.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace backplane::memory {

// Sizes as in CUDA's allocator.
constexpr size_t kMinBlock = 512;                // every block is a multiple
constexpr size_t kSmallLimit = size_t{1} << 20;  // requests up to this size come from a small segment
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLargeRound = size_t{2} << 20;  // a segment for a single request is rounded up to this; the rest: AllocConfig

// Values are indices into c10's StatArray, whose element 0 is the sum of both.
enum class PoolKind : uint8_t { small = 1, large = 2 };

inline PoolKind pool_kind(size_t size) { return size <= kSmallLimit ? PoolKind::small : PoolKind::large; }

enum class BlockState : uint8_t {
  used,      // allocated
  recent,    // free, whole, in the arena's front cache; neighbours are not merged yet
  free,      // free, merged, in the arena's best-fit set
  unmapped,  // of an expandable segment: addresses without memory
  claimed,   // of an expandable segment: being mapped or unmapped by a thread, or lost because the driver failed to unmap it
  waiting,   // freed by its owner, still used by other streams: events are outstanding
  spare      // no memory: an object for later use
};

class Arena;
class DeviceCache;

struct Block;

// One allocation from the driver, or the addresses of an expandable segment (expandable.cpp).
struct Segment {
  DeviceCache* owner = nullptr;
  Arena* arena = nullptr;  // the arena of the stream that owns its blocks
  uint64_t address = 0;
  size_t size = 0;
  PoolKind kind = PoolKind::small;
  bool oversize = false;  // allocated while its size was at least max_split_size
  uint64_t chunk = 0;     // of an expandable segment: bytes per mapping; else 0
  uint64_t mapped = 0;    // of an expandable segment: bytes with memory
  Block* first = nullptr;
  std::shared_ptr<c10::GatheredContext> context;  // the stack of the allocation, if recorded
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
  bool oversize = false;                                    // as in Segment, at the allocation of the block
  std::unique_ptr<std::vector<c10::Stream>> other_streams;  // from record_stream; NULL for nearly all blocks
  std::shared_ptr<c10::GatheredContext> context;            // the stack of the allocation, if recorded

  void* pointer() const { return reinterpret_cast<void*>(address.load(std::memory_order_relaxed)); }
  // A free part of a segment that cannot be returned to the driver by itself; expandable segments return chunks.
  bool is_split() const { return segment->chunk == 0 && (previous != nullptr || next != nullptr); }
};

}  // namespace backplane::memory
