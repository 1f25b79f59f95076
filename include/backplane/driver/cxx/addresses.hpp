// backplane/driver/cxx/addresses.hpp: from a device address to the runtime's buffer and the offset in it.
//
// The ABI wants addresses that are unique across the devices of an instance and allow arithmetic. A runtime that hands out buffer objects
// gets such addresses from a Reservation: a range of the process's own address space that nobody can touch, in which each buffer is given a
// place. An entry then turns the address that it receives back into buffer and offset.
//
//     Reservation<vendor_buffer*> addresses{uint64_t{1} << 40};
//     *out = addresses.place(bytes, 512, vendor_alloc(bytes));                                      // alloc
//     auto at = addresses.range(src, bytes, "copy: src");  vendor_copy(at.handle, at.offset, ...);  // copy
//     vendor_free(addresses.remove(address)->handle);                                               // free
//
// A runtime that has addresses of its own, and yet wants a buffer in its calls, keeps them in an AddressTable: insert() instead of place().
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <utility>

#include "error.hpp"

namespace backplane::driver {

/// Where an address lies.
template <class Handle>
struct AddressPlace {
  uint64_t base;
  uint64_t bytes;   // as asked for
  uint64_t offset;  // of the address from base
  Handle handle;
};

/// Allocations at addresses that the runtime gave, each with a handle. Thread safe.
template <class Handle>
class AddressTable {
 public:
  using Place = AddressPlace<Handle>;

  /// Throws Error(BP_INTERNAL) if part of the range is taken: the runtime's addresses collide, so use a Reservation.
  void insert(uint64_t address, uint64_t bytes, Handle handle) {
    if (try_insert(address, bytes, std::move(handle))) return;
    throw Error(BP_INTERNAL, format("the address 0x%llx of %llu bytes lies in another allocation", wide(address), wide(bytes)));
  }
  /// False if part of the range is taken.
  bool try_insert(uint64_t address, uint64_t bytes, Handle handle) {
    return try_insert(address, bytes, std::move(handle), std::max<uint64_t>(bytes, 1));
  }

  /// What the address lies in; nothing if that is no live allocation. One of 0 bytes contains its own base.
  std::optional<Place> find(uint64_t address) const {
    auto place = around(address, 0);
    if (place && place->offset >= std::max<uint64_t>(place->bytes, 1)) place.reset();
    return place;
  }

  /// The same for a range, for copies and fills. Throws Error(BP_INVALID_ARGUMENT) if it does not lie in one allocation; `what` is named
  /// then. 0 bytes may begin one past the end.
  Place range(uint64_t address, uint64_t bytes, const char* what) const {
    if (auto place = around(address, bytes)) return *place;
    throw Error(BP_INVALID_ARGUMENT, format("%s: 0x%llx and %llu bytes are not inside one allocation", what, wide(address), wide(bytes)));
  }

  /// True if [address, address + bytes) lies in one allocation.
  bool contains(uint64_t address, uint64_t bytes) const { return around(address, bytes).has_value(); }

  /// Ends an allocation and gives its handle and size back; nothing if `address` is not the base of one.
  std::optional<Place> remove(uint64_t address) {
    uint64_t span = 0;
    return remove(address, span);
  }

  /// Calls f with each place, the lowest first.
  template <class F>
  void each(F&& f) const {
    std::shared_lock lock(mutex_);
    for (const auto& [base, block] : blocks_) f(Place{base, block.bytes, 0, block.handle});
  }

 protected:
  // span: the bytes from the base in which no other may begin.
  bool try_insert(uint64_t address, uint64_t bytes, Handle handle, uint64_t span) {
    std::unique_lock lock(mutex_);
    const auto next = blocks_.lower_bound(address);
    const bool meets_next = next != blocks_.end() && next->first - address < span;
    if (meets_next || (next != blocks_.begin() && address - std::prev(next)->first < std::prev(next)->second.span)) return false;
    blocks_.emplace_hint(next, address, Block{bytes, span, std::move(handle)});
    return true;
  }
  std::optional<Place> remove(uint64_t address, uint64_t& span) {
    std::unique_lock lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return std::nullopt;
    Place place{address, found->second.bytes, 0, std::move(found->second.handle)};
    span = found->second.span;
    blocks_.erase(found);
    return place;
  }
  /// What no allocation has around an address that is free: from the end of the one before it to the next one, inside [begin, end).
  std::pair<uint64_t, uint64_t> free_around(uint64_t address, uint64_t begin, uint64_t end) const {
    std::shared_lock lock(mutex_);
    const auto next = blocks_.lower_bound(address);
    if (next != blocks_.begin()) begin = std::prev(next)->first + std::prev(next)->second.span;
    return {begin, next == blocks_.end() ? end : next->first};
  }

 private:
  struct Block {
    uint64_t bytes, span;
    Handle handle;
  };
  /// The allocation that the range lies in; 0 bytes may begin one past its end.
  std::optional<Place> around(uint64_t address, uint64_t bytes) const {
    std::shared_lock lock(mutex_);
    const auto next = blocks_.upper_bound(address);
    if (next == blocks_.begin()) return std::nullopt;
    const auto& [base, block] = *std::prev(next);
    const uint64_t offset = address - base;
    if (offset > block.bytes || bytes > block.bytes - offset) return std::nullopt;
    return Place{base, block.bytes, offset, block.handle};
  }

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Block> blocks_;
};

/// The same, and gives out the places, in the window [base, base + bytes): best fit, neighbours merge when freed.
template <class Handle>
class AddressMap : private AddressTable<Handle> {
 public:
  using Table = AddressTable<Handle>;
  using Place = AddressPlace<Handle>;
  using Table::contains, Table::find, Table::range;

  AddressMap(uint64_t base, uint64_t bytes) : base_(base), bytes_(bytes) { add_gap(base, bytes); }

  uint64_t base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

  /// A place for `bytes` (0 takes one unit of alignment, a power of two), with at least `behind` bytes behind it that no place has. Throws
  /// Error(BP_OUT_OF_MEMORY) if the window is full.
  uint64_t place(uint64_t bytes, uint64_t alignment, Handle handle, uint64_t behind = 0) {
    std::lock_guard lock(gaps_mutex_);
    if (bytes <= bytes_) {
      const uint64_t span = (std::max<uint64_t>(bytes, 1) + behind + alignment - 1) & ~(alignment - 1);
      for (auto gap = gaps_.lower_bound({span, 0}); gap != gaps_.end(); ++gap) {
        const auto [size, start] = *gap;
        const uint64_t at = (start + alignment - 1) & ~(alignment - 1);
        if (at - start + span > size) continue;
        Table::try_insert(at, bytes, std::move(handle), span);  // first: it may throw, and then nothing has changed
        gaps_.erase(gap);
        add_gap(start, at - start);
        add_gap(at + span, start + size - at - span);
        return at;
      }
    }
    throw Error(BP_OUT_OF_MEMORY, "no room of " + std::to_string(bytes) + " bytes left in the address window");
  }

  /// Ends a place and gives its handle and size back; nothing if `address` is not the base of one.
  std::optional<Place> remove(uint64_t address) {
    std::lock_guard lock(gaps_mutex_);
    uint64_t span = 0;
    auto place = Table::remove(address, span);
    if (!place) return place;
    const auto [begin, end] = Table::free_around(address, base_, base_ + bytes_);
    gaps_.erase({address - begin, begin});
    gaps_.erase({end - address - span, address + span});
    add_gap(begin, end - begin);
    return place;
  }

 private:
  void add_gap(uint64_t start, uint64_t size) {
    if (size != 0) gaps_.emplace(size, start);
  }

  const uint64_t base_, bytes_;
  std::mutex gaps_mutex_;
  std::set<std::pair<uint64_t, uint64_t>> gaps_;  // (size, start)
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
