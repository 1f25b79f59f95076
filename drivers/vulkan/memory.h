// drivers/vulkan/memory.h: device memory: allocations at device addresses, and copies and fills of them as pieces of work.
#pragma once

#include <cstdint>
#include <memory>

#include <backplane/driver/cxx/addresses.hpp>

#include "../engine/fill.h"
#include "pinned.h"
#include "stream.h"

namespace backplane::driver::vulkan {

/// An allocation.
struct Block {
  Device* device;
  std::shared_ptr<Buffer> buffer;
  uint64_t begin;  // of the allocation, in the buffer
};

/// Where one side of a copy lies.
struct Place {
  uint64_t address;
  int32_t device;  // or BP_HOST_DEVICE
};

/// Thread safe.
class Memory {
 public:
  explicit Memory(Pinned& pinned) : pinned_(pinned) {}

  using Found = AddressPlace<Block>;
  uint64_t alloc(Device& device, uint64_t bytes);
  void free(int32_t device, uint64_t address);
  std::optional<Found> find(uint64_t address) const { return table_.find(address); }
  /// A range of a device's; throws for what does not lie in one allocation. `what` is named then.
  Found range(Place place, uint64_t bytes, const char* what) const;
  /// For the host; NULL where it does not reach the memory.
  static char* host(const Found& found);

  /// How a copy is done. Memory of the host that is not pinned is good for the calling thread alone: the work is then of the host.
  enum class Caller { waits, goes_on };
  Work copy(Device& on, Place dst, Place src, uint64_t bytes, Caller caller);
  Work fill(Device& on, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count) const;

 private:
  Pinned& pinned_;
  AddressTable<Block> table_;
};

}  // namespace backplane::driver::vulkan
