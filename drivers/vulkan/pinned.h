// drivers/vulkan/pinned.h: memory of the host for copy_async: the driver's, or the caller's. A device uses it in place from its first copy
// on (VK_EXT_external_memory_host), if it can.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <backplane/driver/cxx/addresses.hpp>

#include "buffer.h"

namespace backplane::driver::vulkan {

class Device;

struct HostBlock {
  const bool own;  // of host_alloc; else registered
  std::mutex mutex{};
  std::map<const Device*, std::unique_ptr<Buffer>> imports{};  // NULL: the device cannot
};

class Pinned {
 public:
  /// page: what begins and sizes are a multiple of, for every device.
  explicit Pinned(uint64_t page) : page_(page) {}
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  void* alloc(uint64_t bytes);
  void free(void* memory) { drop(memory, true, "host_free: not an address of host_alloc"); }
  void add(void* memory, uint64_t bytes);
  void remove(void* memory) { drop(memory, false, "host_unregister: not an address of host_register"); }

  using Found = AddressPlace<std::shared_ptr<HostBlock>>;
  std::optional<Found> find(uint64_t address) const { return table_.find(address); }
  bool contains(uint64_t address, uint64_t bytes) const { return table_.contains(address, bytes); }

  struct Piece {
    VkBuffer buffer;
    uint64_t offset;
  };
  /// Where a range of pinned memory lies for the device; nothing if it cannot use it, or the memory is not pinned.
  std::optional<Piece> piece(Device& device, uint64_t address, uint64_t bytes);
  /// For close: no device uses any of it.
  void forget_devices();

 private:
  void drop(void* memory, bool own, const char* otherwise);
  void unmap(const Found& block) const;
  uint64_t up(uint64_t bytes) const { return (bytes + page_ - 1) & ~(page_ - 1); }

  const uint64_t page_;
  AddressTable<std::shared_ptr<HostBlock>> table_;
};

}  // namespace backplane::driver::vulkan
