// drivers/vulkan/commands.h: command buffers, and the memory that their commands read: arguments of kernels, patterns of fills.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer.h"

namespace backplane::driver::vulkan {

class Device;

/// Memory that the host writes and the device reads, in slots of one size.
class ArgumentPool {
 public:
  static constexpr uint64_t kSlot = 8192;
  struct Slot {
    Buffer* of = nullptr;
    uint64_t offset = 0;
  };

  explicit ArgumentPool(Device& device) : device_(device) {}
  Slot take();
  void give(const std::vector<Slot>& slots);

 private:
  static constexpr uint64_t kSlots = 64;  // of a buffer

  Device& device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Slot> free_;
};

/// Where VkCommandBuffers come from. Externally synchronized, as are the Commands made from it.
class CommandPool {
 public:
  explicit CommandPool(Device& device);
  ~CommandPool();
  CommandPool(const CommandPool&) = delete;
  CommandPool& operator=(const CommandPool&) = delete;
  VkCommandBuffer make();

 private:
  Device& device_;
  VkCommandPool pool_ = nullptr;
};

/// One command buffer. Each command comes after the ones before it: barrier() is called between them.
class Commands {
 public:
  Commands(Device& device, CommandPool& pool);
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  Device& device() const { return device_; }
  VkCommandBuffer get() const { return buffer_; }
  /// usage: VK_COMMAND_BUFFER_USAGE_*.
  void begin(VkFlags usage);
  void end();
  /// What comes later sees all that came before, on the host as well.
  void barrier();

  struct Piece {
    char* host;
    uint64_t address;
    VkBuffer buffer;
    uint64_t offset;  // in the buffer
  };
  /// Memory for at most kSlot bytes that stays as the caller writes it until the commands have run; aligned to 16.
  Piece place(uint64_t bytes);
  /// Keeps an object until the commands have run.
  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }
  /// They have run: what they needed is given back.
  void recycle();

 private:
  Device& device_;
  VkCommandBuffer buffer_;
  std::vector<ArgumentPool::Slot> slots_;
  uint64_t used_ = 0;  // of the last slot
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace backplane::driver::vulkan
