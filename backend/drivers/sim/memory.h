// drivers/sim/memory.h: the memory of one simulated device: an address window, its places, its limit, and where the pages are.
//
// unified:  the device address is the host pointer.
// discrete: the host's window [base, base + W) has no access, so a stray host read faults as it would on a card. The device reaches the
//           same byte at `address + W`, where a memfd is mapped. One addition a kernel argument, no protection to switch.
// Pages come when they are touched and go back to the system when a large block is freed; the limit is kept by counting.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include <backplane/driver_addresses.hpp>

namespace backplane::driver::sim {

enum class Kind { unified, discrete };

class DeviceMemory {
 public:
  struct Nothing {};
  using Place = AddressMap<Nothing>::Place;
  static constexpr uint64_t kAlignment = 512;

  DeviceMemory(int32_t device, Kind kind, uint64_t limit);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint64_t alloc(uint64_t bytes);
  void free(uint64_t address);
  uint64_t free_bytes() const { return limit_ - used_.load(std::memory_order_relaxed); }

  std::optional<Place> find(uint64_t address) const { return places_.find(address); }

  /// Where the device reaches [address, address + bytes). Throws unless that lies in one allocation; `what` names it then.
  char* range(uint64_t address, uint64_t bytes, const char* what) const;

  /// Where the device reaches a live address; nullptr for any other. A few nanoseconds when asked again for the same allocation.
  void* map(uint64_t address) const;

 private:
  char* reach(uint64_t address) const { return reinterpret_cast<char*>(address + delta_); }
  void discard(uint64_t address, uint64_t bytes);

  const int32_t device_;
  const uint64_t limit_;
  const uint64_t delta_;
  ReservedRange range_;
  AddressMap<Nothing> places_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> generation_;  // a new number, unique in the process, at every free: what map() remembers is void then
};

}  // namespace backplane::driver::sim
