// drivers/cuda/vmm.h: bp.vmm of one GPU: address ranges of CUDA's, and memory that is created and mapped into them part by part.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include <backplane/driver/cxx/addresses.hpp>

#include "device.h"

namespace backplane::driver::cuda {

class Vmm {
 public:
  Vmm(const Library& cuda, Device& device) : cuda_(cuda), device_(device) {}
  /// Takes everything back. The caller has made the device's context current.
  ~Vmm();
  Vmm(const Vmm&) = delete;
  Vmm& operator=(const Vmm&) = delete;

  uint64_t granularity();
  uint64_t reserve(uint64_t bytes);
  void release(uint64_t address, uint64_t bytes);
  void map(uint64_t address, uint64_t bytes);
  void unmap(uint64_t address, uint64_t bytes);

  /// Whether the peer's work reaches what is mapped, now and later: such memory does not follow cuCtxEnablePeerAccess.
  void give_access(const Device& peer);

  /// The run of adjacent mappings that the address lies in.
  std::optional<AddressPlace<int>> find(uint64_t address) const;

  /// Throws Error(BP_INVALID_ARGUMENT) for a range that lies in a reservation and is not mapped as a whole. Other addresses are not its
  /// own. Costs nothing while nothing is reserved.
  void check(uint64_t address, uint64_t bytes, const char* what) const;

 private:
  struct Mapping {
    uint64_t bytes;
    CUmemGenericAllocationHandle memory;
  };
  CUmemAllocationProp property() const;
  void drop(uint64_t address, const Mapping& mapping);
  uint64_t reservation_of(uint64_t address, uint64_t bytes, const char* what) const;

  const Library& cuda_;
  Device& device_;
  mutable std::mutex mutex_;  // of what follows
  std::map<uint64_t, uint64_t> reserved_;
  std::map<uint64_t, Mapping> mapped_;
  std::set<int32_t> peers_;  // ordinals
  std::atomic<bool> any_{false};
  std::atomic<uint64_t> unit_{0};
};

}  // namespace backplane::driver::cuda
