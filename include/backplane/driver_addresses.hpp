// backplane/driver_addresses.hpp: device addresses for runtimes whose memory has handles, or whose devices' addresses collide.
//
// The ABI wants addresses that are unique across the devices of an instance and allow arithmetic. A runtime that hands out buffer objects
// gets such addresses from a Reservation: a range of the process's own address space that nobody can touch, in which each buffer is given a
// place. An entry then turns the address that it receives back into buffer and offset.
//
//     Reservation<vendor_buffer*> addresses{uint64_t{1} << 40};
//     *out = addresses.place(bytes, 512, vendor_alloc(bytes));                         // alloc
//     auto at = addresses.find(src);  vendor_copy(at->handle, at->offset, ...);        // copy
//     vendor_free(addresses.remove(address));                                          // free
#ifndef BACKPLANE_DRIVER_ADDRESSES_HPP
#define BACKPLANE_DRIVER_ADDRESSES_HPP

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <utility>

#include "driver_error.hpp"

namespace backplane::driver {

/// Gives out places in the window [base, base + bytes): best fit, neighbours merge when freed. Thread safe.
template <class Handle>
class AddressMap {
 public:
  /// Where an address lies.
  struct Place {
    uint64_t base;
    uint64_t bytes;   // as asked for
    uint64_t offset;  // of the address from base
    Handle handle;
  };

  AddressMap(uint64_t base, uint64_t bytes) : base_(base), bytes_(bytes) { add_gap(base, bytes); }

  uint64_t base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

  /// A place for `bytes` (0 takes one unit of alignment, a power of two). Throws Error(BP_OUT_OF_MEMORY) if the window is full.
  uint64_t place(uint64_t bytes, uint64_t alignment, Handle handle) {
    std::unique_lock lock(mutex_);
    if (bytes <= bytes_) {
      const uint64_t span = (std::max<uint64_t>(bytes, 1) + alignment - 1) & ~(alignment - 1);
      for (auto gap = by_size_.lower_bound({span, 0}); gap != by_size_.end(); ++gap) {
        const auto [size, start] = *gap;
        const uint64_t at = (start + alignment - 1) & ~(alignment - 1);
        if (at - start + span > size) continue;
        used_.emplace(at, Block{bytes, span, std::move(handle)});  // first: it may throw, and then nothing has changed
        remove_gap(start, size);
        add_gap(start, at - start);
        add_gap(at + span, start + size - at - span);
        return at;
      }
    }
    throw Error(BP_OUT_OF_MEMORY, "no room of " + std::to_string(bytes) + " bytes left in the address window");
  }

  /// What the address lies in; nothing if that is no live place. A place of 0 bytes contains its own base.
  std::optional<Place> find(uint64_t address) const {
    std::shared_lock lock(mutex_);
    auto next = used_.upper_bound(address);
    if (next == used_.begin()) return std::nullopt;
    const auto& [base, block] = *--next;
    if (address - base >= std::max<uint64_t>(block.bytes, 1)) return std::nullopt;
    return Place{base, block.bytes, address - base, block.handle};
  }

  /// True if [address, address + bytes) lies in one place.
  bool contains(uint64_t address, uint64_t bytes) const {
    std::shared_lock lock(mutex_);
    auto next = used_.upper_bound(address);
    if (next == used_.begin()) return false;
    const auto& [base, block] = *--next;
    const uint64_t offset = address - base;
    return offset <= block.bytes && bytes <= block.bytes - offset;
  }

  /// Ends a place and gives its handle and size back; nothing if `address` is not the base of one.
  std::optional<Place> remove(uint64_t address) {
    std::unique_lock lock(mutex_);
    auto found = used_.find(address);
    if (found == used_.end()) return std::nullopt;
    Place place{address, found->second.bytes, 0, std::move(found->second.handle)};
    uint64_t start = address, size = found->second.span;
    used_.erase(found);
    if (auto next = gaps_.find(start + size); next != gaps_.end()) {
      size += next->second;
      remove_gap(next->first, next->second);
    }
    if (auto before = gaps_.lower_bound(start); before != gaps_.begin()) {
      --before;
      if (before->first + before->second == start) {
        start = before->first;
        size += before->second;
        remove_gap(before->first, before->second);
      }
    }
    add_gap(start, size);
    return place;
  }

 private:
  struct Block {
    uint64_t bytes;
    uint64_t span;  // with what alignment adds
    Handle handle;
  };

  void add_gap(uint64_t start, uint64_t size) {
    if (size == 0) return;
    gaps_.emplace(start, size);
    by_size_.emplace(size, start);
  }

  void remove_gap(uint64_t start, uint64_t size) {
    gaps_.erase(start);
    by_size_.erase({size, start});
  }

  const uint64_t base_, bytes_;
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Block> used_;
  std::map<uint64_t, uint64_t> gaps_;                // start -> size
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (size, start)
};

/// A range of the process's address space without access: no other memory can lie there, and a stray host access faults.
class ReservedRange {
 public:
  explicit ReservedRange(uint64_t bytes, int protection = PROT_NONE) : bytes_(bytes) {
    at_ = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at_ == MAP_FAILED) {
      throw Error(BP_OUT_OF_MEMORY, "cannot reserve " + std::to_string(bytes) + " bytes of address space: " + std::strerror(errno));
    }
  }
  ~ReservedRange() { ::munmap(at_, bytes_); }
  ReservedRange(const ReservedRange&) = delete;
  ReservedRange& operator=(const ReservedRange&) = delete;

  uint64_t base() const { return reinterpret_cast<uint64_t>(at_); }
  uint64_t bytes() const { return bytes_; }

 private:
  void* at_;
  uint64_t bytes_;
};

/// A reserved range and the places in it.
template <class Handle>
class Reservation : private ReservedRange, public AddressMap<Handle> {
 public:
  explicit Reservation(uint64_t size) : ReservedRange(size), AddressMap<Handle>(ReservedRange::base(), size) {}
  using AddressMap<Handle>::base;
  using AddressMap<Handle>::bytes;
};

}  // namespace backplane::driver

#endif
