// drivers/sim/memory.cpp: pages of the two kinds of simulated memory.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

// NULL unless the process has AddressSanitizer's runtime: built in, or preloaded for kernels that are compiled with it.
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void*, size_t);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, size_t);
}

namespace backplane::driver::sim {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

std::atomic<uint64_t> next_generation{1};

uint64_t rounded(uint64_t bytes, uint64_t to) { return (bytes + to - 1) & ~(to - 1); }

/// Of that memory so many bytes may be touched, and the rest behind them may not.
void sanitize(char* memory, uint64_t bytes, uint64_t rest) {
  if (!__asan_poison_memory_region) return;
  __asan_unpoison_memory_region(memory, bytes);
  __asan_poison_memory_region(memory + bytes, rest);
}

/// More than the limit, so that a fragmented window never refuses what the limit allows: four times, and sixteen times where the host has
/// the addresses, for reservations, which may be larger than the memory.
uint64_t window(uint64_t limit) {
  uint64_t whole = kHugePage;
  while (whole < limit) whole *= 2;
  return whole <= uint64_t{64} << 30 ? whole * 16 : whole * 4;
}

}  // namespace

SimMemory::SimMemory(int32_t device, Kind kind, uint64_t limit, bool strict)
    : device_(device),
      limit_(limit),
      delta_(kind == Kind::discrete ? window(limit) : 0),
      strict_(strict),
      range_(window(limit) + delta_ + kHugePage, kind == Kind::discrete || strict ? PROT_NONE : PROT_READ | PROT_WRITE),
      places_(rounded(range_.base(), kHugePage), window(limit)),
      generation_(next_generation.fetch_add(1)) {
  if (kind == Kind::discrete) {
    open_file();
    if (!map_file(places_.base(), places_.bytes(), file_, 0, strict ? PROT_NONE : PROT_READ | PROT_WRITE)) {
      const int reason = errno;
      ::close(file_);
      throw Error(BP_INTERNAL, std::string("cannot map the memory of a simulated device: ") + std::strerror(reason));
    }
  }
  madvise(reach(places_.base()), places_.bytes(), MADV_HUGEPAGE);  // a hint; kernels without it serve small pages
}

SimMemory::~SimMemory() {
  if (strict_) sanitize(reach(places_.base()), places_.bytes(), 0);
  if (file_ >= 0) ::close(file_);
}

void SimMemory::open_file() {
  std::call_once(file_opened_, [this] {
    const int file = memfd_create("backplane-sim", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(places_.bytes())) != 0) {
      const int reason = errno;
      if (file >= 0) ::close(file);
      throw Error(BP_INTERNAL, std::string("cannot make the memory of a simulated device: ") + std::strerror(reason));
    }
    file_ = file;
  });
}

bool SimMemory::map_file(uint64_t address, uint64_t bytes, int file, uint64_t offset, int protection) {
  char* pages = reach(address);
  const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
  if (mmap(pages, bytes, protection, flags, file, static_cast<off_t>(offset)) != pages) return false;
  // A forked child has no device: its accesses fault instead of reaching the parent's memory.
  madvise(pages, bytes, MADV_DONTFORK);
  return true;
}

// What free memory of the window is made of.
bool SimMemory::map_own(uint64_t address, uint64_t bytes) {
  const int protection = strict_ ? PROT_NONE : PROT_READ | PROT_WRITE;
  if (delta_ != 0) return map_file(address, bytes, file_, address - places_.base(), protection);
  char* pages = reach(address);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (mmap(pages, bytes, protection, flags, -1, 0) != pages) return false;
  madvise(pages, bytes, MADV_HUGEPAGE);
  return true;
}

void SimMemory::charge(uint64_t bytes, uint64_t charged, const char* what) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (charged > limit_ - used) {
      throw Error(BP_OUT_OF_MEMORY, std::string(what) + ": device " + std::to_string(device_) + " has " + std::to_string(limit_ - used) +
                                        " of " + std::to_string(limit_) + " bytes free, " + std::to_string(bytes) + " were asked for");
    }
  } while (!used_.compare_exchange_weak(used, used + charged, std::memory_order_relaxed));
}

uint64_t SimMemory::alloc(uint64_t bytes, bool shared) {
  const uint64_t charged = bytes <= limit_ ? rounded(bytes, kAlignment) : bytes;
  charge(bytes, charged, "alloc");
  try {
    const uint64_t alignment = bytes >= kHugePage ? kHugePage : shared || strict_ ? kPage : kAlignment;  // shared: whole pages
    const uint64_t address = places_.place(bytes, alignment, shared ? Use::shared : Use::own, strict_ ? kPage : 0);
    if (shared && delta_ == 0) {
      open_file();
      const uint64_t pages = rounded(std::max<uint64_t>(bytes, 1), kPage);
      if (!map_file(address, pages, file_, address - places_.base(), PROT_READ | PROT_WRITE)) {
        const int reason = errno;
        places_.remove(address);
        throw Error(BP_OUT_OF_MEMORY, std::string("alloc: cannot map shared pages: ") + std::strerror(reason));
      }
    } else if (strict_) {
      protect(address, bytes, PROT_READ | PROT_WRITE);
      sanitize(reach(address), bytes, rounded(bytes, kPage) - bytes);
    }
    return address;
  } catch (...) {
    used_.fetch_sub(charged, std::memory_order_relaxed);
    throw;
  }
}

void SimMemory::free(uint64_t address) {
  const std::optional<Place> place = places_.find(address);
  if (!place || place->offset != 0 || place->handle > Use::shared) throw_no_allocation("free", address);
  discard(address, place->bytes);
  if (place->handle == Use::shared && delta_ == 0) {
    const uint64_t bytes = rounded(std::max<uint64_t>(place->bytes, 1), kPage);
    madvise(reach(address), bytes, MADV_REMOVE);
    map_own(address, bytes);
  } else if (strict_) {
    protect(address, place->bytes, PROT_NONE);
    sanitize(reach(address), rounded(place->bytes, kPage), 0);
  }
  places_.remove(address);
  forget();
  used_.fetch_sub(rounded(place->bytes, kAlignment), std::memory_order_relaxed);
}

// Last of all: what map() remembers between a new number and the removal would outlive the place.
void SimMemory::forget() { generation_.store(next_generation.fetch_add(1), std::memory_order_release); }

void SimMemory::protect(uint64_t address, uint64_t bytes, int protection) {
  if (mprotect(reach(address), rounded(std::max<uint64_t>(bytes, 1), kPage), protection) != 0) {
    throw Error(BP_INTERNAL, std::string("strict=on: mprotect failed: ") + std::strerror(errno));
  }
}

void SimMemory::discard(uint64_t address, uint64_t bytes) {
  if (bytes < 16 * kPage) return;
  const uint64_t begin = rounded(address, kPage);
  const uint64_t end = (address + bytes) & ~(kPage - 1);
  madvise(reach(begin), end - begin, delta_ ? MADV_REMOVE : MADV_DONTNEED);
}

std::optional<SimMemory::Place> SimMemory::find(uint64_t address) const {
  const std::optional<Place> place = places_.find(address);
  if (!place || place->handle != Use::reserved) return place;
  std::shared_lock lock(mapped_mutex_);
  auto first = mapped_.upper_bound(address);
  if (first == mapped_.begin()) return std::nullopt;
  --first;
  if (address - first->first >= first->second) return std::nullopt;
  auto last = first;
  for (auto next = std::next(last); next != mapped_.end() && next->first == last->first + last->second; ++next) last = next;
  while (first != mapped_.begin() && std::prev(first)->first + std::prev(first)->second == first->first) --first;
  // Reservations may lie side by side.
  const uint64_t begin = std::max(first->first, place->base);
  const uint64_t end = std::min(last->first + last->second, place->base + place->bytes);
  return Place{begin, end - begin, address - begin, Use::reserved};
}

uint64_t SimMemory::reserve(uint64_t bytes) { return places_.place(bytes, kGranularity, Use::reserved); }

void SimMemory::check_range(uint64_t address, uint64_t bytes, const char* what) const {
  const std::optional<Place> place = places_.find(address);
  if (!place || place->handle != Use::reserved || bytes == 0 || (address | bytes) % kGranularity != 0 ||
      bytes > place->bytes - place->offset) {
    throw Error(BP_INVALID_ARGUMENT, format("%s: [0x%llx, +%llu) is no part of a reservation of device %d, in multiples of %llu", what,
                                            wide(address), wide(bytes), device_, wide(kGranularity)));
  }
}

void SimMemory::release(uint64_t address, uint64_t bytes) {
  check_range(address, bytes, "vmm.release");
  std::unique_lock lock(mapped_mutex_);
  const std::optional<Place> place = places_.find(address);
  const auto inside = mapped_.lower_bound(address);
  if (place->offset != 0 || place->bytes != bytes || (inside != mapped_.end() && inside->first < address + bytes)) {
    throw Error(BP_INVALID_ARGUMENT, "vmm.release: not the whole of a reservation, or some of it is mapped");
  }
  places_.remove(address);
}

void SimMemory::map_range(uint64_t address, uint64_t bytes) {
  check_range(address, bytes, "vmm.map");
  std::unique_lock lock(mapped_mutex_);
  const auto next = mapped_.lower_bound(address);
  const bool overlaps = (next != mapped_.end() && next->first < address + bytes) ||
                        (next != mapped_.begin() && std::prev(next)->first + std::prev(next)->second > address);
  if (overlaps) throw Error(BP_INVALID_ARGUMENT, "vmm.map: some of the range is mapped already");
  charge(bytes, bytes, "vmm.map");
  if (strict_) protect(address, bytes, PROT_READ | PROT_WRITE);
  mapped_.emplace_hint(next, address, bytes);
}

void SimMemory::unmap_range(uint64_t address, uint64_t bytes) {
  std::unique_lock lock(mapped_mutex_);
  const auto found = mapped_.find(address);
  if (found == mapped_.end() || found->second != bytes) {
    throw Error(BP_INVALID_ARGUMENT,
                format("vmm.unmap: [0x%llx, +%llu) is not a range of one map on device %d", wide(address), wide(bytes), device_));
  }
  discard(address, bytes);
  if (strict_) protect(address, bytes, PROT_NONE);
  mapped_.erase(found);
  forget();
  used_.fetch_sub(bytes, std::memory_order_relaxed);
}

SimMemory::FileRange SimMemory::shared_range(uint64_t address) const {
  const std::optional<Place> place = places_.find(address);
  if (!place || place->offset != 0 || place->handle == Use::foreign) throw_no_allocation("ipc", address);
  if (place->handle == Use::reserved) throw Error(BP_UNSUPPORTED, "ipc: memory that is mapped into a reservation is not shared");
  if (delta_ == 0 && place->handle == Use::own) {
    throw Error(BP_UNSUPPORTED, "ipc: the memory was allocated without BP_ALLOC_SHARED");
  }
  return {file_, address - places_.base(), place->bytes};
}

uint64_t SimMemory::adopt(const FileRange& pages) {
  const uint64_t address = places_.place(pages.bytes, pages.bytes >= kHugePage ? kHugePage : kPage, Use::foreign);
  if (map_file(address, pages.bytes, pages.file, pages.offset, PROT_READ | PROT_WRITE)) return address;
  const int reason = errno;
  disown(address);
  throw Error(BP_OUT_OF_MEMORY, std::string("cannot map another process's device memory: ") + std::strerror(reason));
}

void SimMemory::disown(uint64_t address) {
  const std::optional<Place> place = places_.find(address);
  if (!place || place->handle != Use::foreign) throw_no_allocation("ipc: close", address);
  map_own(place->base, place->bytes);
  places_.remove(place->base);
  forget();
}

void SimMemory::throw_no_allocation(const char* what, uint64_t address) const {
  throw Error(BP_INVALID_ARGUMENT, format("%s: 0x%llx is no allocation of device %d", what, wide(address), device_));
}

char* SimMemory::range(uint64_t address, uint64_t bytes, const char* what) const {
  const std::optional<Place> place = bytes == 0 ? std::nullopt : find(address);
  if (bytes != 0 && (!place || bytes > place->bytes - place->offset)) {
    throw Error(BP_INVALID_ARGUMENT,
                format("%s: [0x%llx, +%llu) is not inside one allocation of device %d", what, wide(address), wide(bytes), device_));
  }
  return reach(address);
}

void* SimMemory::map(uint64_t address) const {
  static thread_local struct {
    uint64_t generation, base, bytes;
  } last = {};
  const uint64_t generation = generation_.load(std::memory_order_acquire);
  if (last.generation != generation || address - last.base >= last.bytes) {
    const std::optional<Place> place = find(address);
    if (!place) return nullptr;
    last = {generation, place->base, std::max<uint64_t>(place->bytes, 1)};
  }
  return reach(address);
}

}  // namespace backplane::driver::sim
