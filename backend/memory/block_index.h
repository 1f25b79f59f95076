// memory/block_index.h: maps an address to its block, for frees, which have only the pointer. One for all devices.
//
// Note [Lock-free lookup]: c10's raw_allocate requires that a DataPtr's context is its data, so a deleter gets only the pointer, and its
// lookup is on the hot path. Readers take no lock. They look up addresses of live allocations, whose entry nobody removes meanwhile; a
// chain may be relinked under a reader (growth, a neighbour removed), which makes the lookup miss. A miss is final if nothing was changed
// meanwhile; else the reader repeats the lookup, and finally takes the lock. Block objects and outgrown bucket arrays are never freed, so
// that such a reader never accesses freed memory. Any address may be looked up: the CPU's allocator asks about host memory
// (fallback/host_memory.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/block.h"

namespace backplane::memory {

class BlockIndex {
 public:
  static BlockIndex& instance();  // never destroyed: tensors may outlive static destructors

  // The block that starts at this address, or NULL. Addresses are unique across devices (driver.h).
  Block* find(const void* pointer) const {
    const auto address = reinterpret_cast<uint64_t>(pointer);
    const Table* table = table_.load(std::memory_order_acquire);
    Block* block = table->bucket(address).load(std::memory_order_acquire);
    if (C10_LIKELY(block != nullptr && block->address.load(std::memory_order_relaxed) == address)) return block;
    return find_slow(address);
  }

  Block* create(uint64_t address);  // a new block object, registered
  void remove(Block* block);        // unregisters it and keeps the object for later

 private:
  struct Table {
    explicit Table(size_t count) : mask(count - 1), buckets(count) {}
    std::atomic<Block*>& bucket(uint64_t address) const {
      // Addresses are multiples of 512: mix the upper bits down (Fibonacci hashing).
      return const_cast<std::atomic<Block*>&>(buckets[(address * 0x9E3779B97F4A7C15ull >> 32) & mask]);
    }
    size_t mask;
    std::vector<std::atomic<Block*>> buckets;
  };

  BlockIndex();
  Block* find_slow(uint64_t address) const;
  Block* find_locked(uint64_t address) const;
  void link(Table& table, Block* block);
  void grow();

  std::atomic<Table*> table_;
  std::atomic<uint64_t> changes_{0};          // odd while a chain is being changed
  std::atomic<uint64_t> lowest_{UINT64_MAX};  // of all addresses that blocks have had
  std::atomic<uint64_t> highest_{0};
  mutable std::mutex mutex_;  // protects all below, and every change of a chain
  std::vector<std::unique_ptr<Table>> tables_;
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;
  size_t live_ = 0;
};

}  // namespace backplane::memory
