// drivers/sim/memory.h: the memory of one simulated device: an address window, its places, its limit, and where the pages are.
//
// unified:  the device address is the host pointer.
// discrete: the host's window [base, base + W) has no access, so a stray host read faults as it would on a card. The device reaches the
//           same byte at `address + W`, where a memfd is mapped. One addition a kernel argument, no protection to switch.
// strict:   only live allocations are mapped, each on pages of its own with another behind them, so that an access beside them is a
//           segmentation fault; and under AddressSanitizer one in the rest of the last page is reported.
// What other processes shall map lies in a memfd (ipc.h): all memory of the discrete kind, of the unified kind what was allocated for it,
// since private pages are the faster ones. Pages come when they are touched and go back to the system when a large block is freed; the
// limit is kept by counting.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include <backplane/driver/cxx/addresses.hpp>

namespace backplane::driver::sim {

enum class Kind { unified, discrete };

class SimMemory {
 public:
  /// A place is an allocation on this process's private pages (own) or on pages that others may map (shared), another process's
  /// allocation, which does not count as used (foreign), or addresses that were set aside (reserved, bp.vmm).
  enum class Use : uint8_t { own, shared, foreign, reserved };
  using Place = AddressMap<Use>::Place;
  /// Pages of a file.
  struct FileRange {
    int file;
    uint64_t offset;
    uint64_t bytes;
  };
  static constexpr uint64_t kAlignment = 512;
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kGranularity = uint64_t{2} << 20;

  SimMemory(int32_t device, Kind kind, uint64_t limit, bool strict);
  ~SimMemory();
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  /// shared: such that shared_range() works.
  uint64_t alloc(uint64_t bytes, bool shared = false);
  void free(uint64_t address);
  uint64_t free_bytes() const { return limit_ - used_.load(std::memory_order_relaxed); }

  // bp.vmm
  uint64_t reserve(uint64_t bytes);
  void release(uint64_t address, uint64_t bytes);
  void map_range(uint64_t address, uint64_t bytes);
  void unmap_range(uint64_t address, uint64_t bytes);

  /// The allocation that the address lies in, or the run of adjacent mappings.
  std::optional<Place> find(uint64_t address) const;

  /// Where the device reaches [address, address + bytes). Throws unless that lies in one allocation; `what` names it then.
  char* range(uint64_t address, uint64_t bytes, const char* what) const;

  /// The part of the device's file that an allocation of this process is. Throws for another address, or for private pages.
  FileRange shared_range(uint64_t address) const;

  /// Gives whole pages of another process's file a place here; ends such a place by any address in it.
  uint64_t adopt(const FileRange& pages);
  void disown(uint64_t address);

  /// Where the device reaches a live address; nullptr for any other. A few nanoseconds when asked again for the same allocation.
  void* map(uint64_t address) const;

 private:
  char* reach(uint64_t address) const { return reinterpret_cast<char*>(address + delta_); }
  void discard(uint64_t address, uint64_t bytes);
  void charge(uint64_t bytes, uint64_t charged, const char* what);
  void check_range(uint64_t address, uint64_t bytes, const char* what) const;
  void forget();
  void protect(uint64_t address, uint64_t bytes, int protection);
  void open_file();
  bool map_file(uint64_t address, uint64_t bytes, int file, uint64_t offset, int protection);
  bool map_own(uint64_t address, uint64_t bytes);
  [[noreturn]] void throw_no_allocation(const char* what, uint64_t address) const;

  const int32_t device_;
  const uint64_t limit_;
  const uint64_t delta_;
  const bool strict_;
  ReservedRange range_;
  AddressMap<Use> places_;
  mutable std::shared_mutex mapped_mutex_;
  std::map<uint64_t, uint64_t> mapped_;  // in reservations: start -> bytes, as they were mapped
  std::once_flag file_opened_;
  int file_ = -1;  // as large as the window
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> generation_;  // a new number, unique in the process, at every free: what map() remembers is void then
};

}  // namespace backplane::driver::sim
