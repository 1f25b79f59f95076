// drivers/cuda/memory.h: what an instance has allocated: device memory of each GPU, and host memory for copies.
#pragma once

#include <cstdint>
#include <optional>

#include <backplane/driver.h>
#include <backplane/driver/cxx/addresses.hpp>

#include "device.h"

namespace backplane::driver::cuda {

/// bp_driver.alloc of one GPU. The caller has made the device's context current; so it has for the destructor.
class DeviceMemory {
 public:
  DeviceMemory(const Library& cuda, Device& device, bool managed);
  ~DeviceMemory() { live_.destroy_all(); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint64_t alloc(uint64_t bytes);
  void free(uint64_t address) { give_back(address, false, "free"); }
  /// The size of an allocation. Throws Error(BP_INVALID_ARGUMENT) unless `address` is the base of one.
  uint64_t bytes_of(uint64_t address, const char* what) const;

  /// Memory of another process (bp.ipc), which CUDA has mapped.
  void adopt(uint64_t address, uint64_t bytes);
  void disown(uint64_t address) { give_back(address, true, "ipc.memory_close"); }

  struct Block {
    uint64_t native;  // what CUDA gave
    bool foreign;     // another process's
  };
  using Place = AddressPlace<Block>;
  std::optional<Place> find(uint64_t address) const { return blocks_.find(address); }
  Place range(uint64_t address, uint64_t bytes, const char* what) const { return blocks_.range(address, bytes, what); }

 private:
  void give_back(uint64_t address, bool foreign, const char* what);
  void release(uint64_t address);

  const Library& cuda_;
  Device& device_;
  const bool managed_;
  size_t total_ = 0;
  AddressTable<Block> blocks_;
  LiveHandles<uint64_t> live_;  // the bases
};

/// Pinned and registered host memory, good for every GPU. The caller has made some context current.
class HostMemory {
 public:
  explicit HostMemory(const Library& cuda);

  void* alloc(uint64_t bytes);
  void add(void* memory, uint64_t bytes);
  /// kind: BP_MEMORY_PINNED or BP_MEMORY_REGISTERED, which must be that of the memory.
  void give_back(void* memory, int32_t kind, const char* what);
  std::optional<AddressPlace<int32_t>> find(uint64_t address) const { return blocks_.find(address); }
  void release_all() { live_.destroy_all(); }

 private:
  void keep(void* memory, uint64_t bytes, int32_t kind);
  void release(uint64_t address);

  const Library& cuda_;
  AddressTable<int32_t> blocks_;
  LiveHandles<uint64_t> live_;
};

}  // namespace backplane::driver::cuda
