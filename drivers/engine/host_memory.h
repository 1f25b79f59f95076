// drivers/engine/host_memory.h: the pinned host memory of an instance: what host_alloc gave out and what host_register named.
//
// The memory is ordinary memory; what counts is the register, by which copy_async distinguishes pinned from pageable.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include <backplane/driver/cxx/addresses.hpp>

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
    blocks_.each([](const auto& block) {
      if (block.handle == Origin::allocated) std::free(reinterpret_cast<void*>(block.base));
    });
  }

  void* alloc(uint64_t bytes) {
    const uint64_t span = (bytes + kAlignment - 1) & ~(kAlignment - 1);
    void* memory = span >= bytes ? std::aligned_alloc(kAlignment, span ? span : kAlignment) : nullptr;
    if (!memory) throw Error(BP_OUT_OF_MEMORY, "host_alloc: the host has no " + std::to_string(bytes) + " bytes");
    blocks_.insert(reinterpret_cast<uint64_t>(memory), bytes, Origin::allocated);
    return memory;
  }

  void free(void* memory) {
    take(memory, Origin::allocated, "host_free: not an address of host_alloc");
    std::free(memory);
  }

  /// Memory that somebody else allocated as pinned, until disown(). For shims.
  void adopt(void* memory, uint64_t bytes) { blocks_.insert(reinterpret_cast<uint64_t>(memory), bytes, Origin::adopted); }
  void disown(void* memory) { take(memory, Origin::adopted, "host_free: not an address of host_alloc"); }

  void add(void* memory, uint64_t bytes) {
    const uint64_t base = reinterpret_cast<uint64_t>(memory);
    if (base == 0 || bytes == 0 || base + bytes < base) throw Error(BP_INVALID_ARGUMENT, "host_register: an address and a size are needed");
    if (!blocks_.try_insert(base, bytes, Origin::registered)) {
      throw Error(BP_INVALID_ARGUMENT, "host_register: part of the range is pinned already");
    }
  }

  void remove(void* memory) { take(memory, Origin::registered, "host_unregister: not an address of host_register"); }

  /// The pinned block that an address lies in.
  std::optional<Block> find(uint64_t address) const {
    const auto place = blocks_.find(address);
    if (!place) return std::nullopt;
    return Block{place->base, place->bytes, place->handle == Origin::registered ? BP_MEMORY_REGISTERED : BP_MEMORY_PINNED};
  }

  /// Throws unless [address, address + bytes) is pinned.
  void check(uint64_t address, uint64_t bytes) const {
    if (bytes == 0 || blocks_.contains(address, bytes)) return;
    throw Error(BP_INVALID_ARGUMENT, "copy_async: the host memory is not pinned; use host_alloc or host_register, or copy");
  }

 private:
  enum class Origin { allocated, adopted, registered };
  static constexpr uint64_t kAlignment = 512;

  void take(void* memory, Origin origin, const char* otherwise) {
    const auto place = blocks_.find(reinterpret_cast<uint64_t>(memory));
    if (!place || place->offset != 0 || place->handle != origin || !blocks_.remove(place->base))
      throw Error(BP_INVALID_ARGUMENT, otherwise);
  }

  AddressTable<Origin> blocks_;
};

}  // namespace backplane::driver
