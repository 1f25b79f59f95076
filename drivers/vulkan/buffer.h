// drivers/vulkan/buffer.h: a VkBuffer with memory of its own, and where it lies for the device and for the host.
#pragma once

#include <cstdint>

#include "library.h"

namespace backplane::driver::vulkan {

/// Plain memory, mapped where it says so; or memory of the host that the device uses in place.
class Buffer {
 public:
  enum class Mapped { no, yes };
  /// Throws Error.
  Buffer(const DeviceCalls& calls, VkDevice device, uint64_t bytes, uint32_t memory_type, Mapped mapped);
  /// Of [begin, begin + bytes), both aligned as the device asks.
  Buffer(const DeviceCalls& calls, VkDevice device, void* begin, uint64_t bytes);
  ~Buffer() { release(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  VkBuffer get() const { return buffer_; }
  uint64_t address() const { return address_; }
  /// NULL where it is not mapped.
  char* host() const { return host_; }

 private:
  void create(uint64_t bytes, const void* next);
  void bind();
  void release() noexcept;

  const DeviceCalls& calls_;
  const VkDevice device_;
  VkBuffer buffer_ = nullptr;
  VkDeviceMemory memory_ = nullptr;
  uint64_t address_ = 0;
  char* host_ = nullptr;
};

}  // namespace backplane::driver::vulkan
