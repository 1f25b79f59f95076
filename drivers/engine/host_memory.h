// drivers/engine/host_memory.h: the pinned host memory of an instance: what host_alloc gave out and what host_register named.
//
// The memory is ordinary memory; what counts is the register, by which copy_async tells pinned from pageable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>

#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver {

class HostMemory {
 public:
  struct Block {
    uint64_t base, bytes;
    int32_t kind;  // BP_MEMORY_PINNED or BP_MEMORY_REGISTERED
  };

  HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() {
    for (auto& [base, block] : blocks_) {
      if (block.origin == Origin::allocated) std::free(reinterpret_cast<void*>(base));
    }
  }

  void* alloc(uint64_t bytes) {
    const uint64_t span = (bytes + kAlignment - 1) & ~(kAlignment - 1);
    void* memory = span >= bytes ? std::aligned_alloc(kAlignment, span ? span : kAlignment) : nullptr;
    if (!memory) throw Error(BP_OUT_OF_MEMORY, "host_alloc: the host has no " + std::to_string(bytes) + " bytes");
    insert(memory, bytes, Origin::allocated);
    return memory;
  }

  void free(void* memory) {
    take(memory, Origin::allocated, "host_free: not an address of host_alloc");
    std::free(memory);
  }

  /// Memory that somebody else allocated as pinned, until disown(). For shims.
  void adopt(void* memory, uint64_t bytes) { insert(memory, bytes, Origin::adopted); }
  void disown(void* memory) { take(memory, Origin::adopted, "host_free: not an address of host_alloc"); }

  void add(void* memory, uint64_t bytes) {
    const uint64_t base = reinterpret_cast<uint64_t>(memory);
    if (base == 0 || bytes == 0 || base + bytes < base) throw Error(BP_INVALID_ARGUMENT, "host_register: an address and a size are needed");
    std::unique_lock lock(mutex_);
    const auto next = blocks_.lower_bound(base);
    const auto overlaps = [&](auto entry) { return entry->first < base + bytes && base < entry->first + entry->second.bytes; };
    if ((next != blocks_.end() && overlaps(next)) || (next != blocks_.begin() && overlaps(std::prev(next)))) {
      throw Error(BP_INVALID_ARGUMENT, "host_register: part of the range is pinned already");
    }
    blocks_.emplace(base, Entry{bytes, Origin::registered});
  }

  void remove(void* memory) { take(memory, Origin::registered, "host_unregister: not an address of host_register"); }

  /// The pinned block that an address lies in.
  std::optional<Block> find(uint64_t address) const {
    std::shared_lock lock(mutex_);
    auto next = blocks_.upper_bound(address);
    if (next == blocks_.begin()) return std::nullopt;
    --next;
    if (address - next->first >= std::max<uint64_t>(next->second.bytes, 1)) return std::nullopt;
    return Block{next->first, next->second.bytes, next->second.origin == Origin::registered ? BP_MEMORY_REGISTERED : BP_MEMORY_PINNED};
  }

  /// Throws unless [address, address + bytes) is pinned.
  void check(uint64_t address, uint64_t bytes) const {
    if (bytes == 0) return;
    const std::optional<Block> block = find(address);
    if (!block || bytes > block->bytes - (address - block->base)) {
      throw Error(BP_INVALID_ARGUMENT, "copy_async: the host memory is not pinned; use host_alloc or host_register, or copy");
    }
  }

 private:
  enum class Origin { allocated, adopted, registered };
  struct Entry {
    uint64_t bytes;
    Origin origin;
  };
  static constexpr uint64_t kAlignment = 512;

  void insert(void* memory, uint64_t bytes, Origin origin) {
    std::unique_lock lock(mutex_);
    blocks_.emplace(reinterpret_cast<uint64_t>(memory), Entry{bytes, origin});
  }

  void take(void* memory, Origin origin, const char* otherwise) {
    std::unique_lock lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<uint64_t>(memory));
    if (found == blocks_.end() || found->second.origin != origin) throw Error(BP_INVALID_ARGUMENT, otherwise);
    blocks_.erase(found);
  }

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Entry> blocks_;
};

}  // namespace backplane::driver
