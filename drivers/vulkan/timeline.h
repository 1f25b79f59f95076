// drivers/vulkan/timeline.h: how far a stream is: a timeline semaphore, whose value grows by one with each piece of the stream's work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "library.h"

namespace backplane::driver::vulkan {

class Device;

class Timeline {
 public:
  explicit Timeline(Device& device);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  Device& device() const { return device_; }
  VkSemaphore get() const { return semaphore_; }

  /// Whether the value is reached. Throws what the device answers.
  bool has(uint64_t value);
  /// VK_SUCCESS, VK_TIMEOUT or an error.
  VkResult wait(uint64_t value, uint64_t timeout_ns);
  /// From the host; nothing of a lower value is on its way. An error is one of a device that is lost.
  void signal(uint64_t value) noexcept;

  /// Up to here the work has been handed to the device, or done: a wait on the device for it ends.
  bool has_submitted(uint64_t value) const { return submitted_.load(std::memory_order_acquire) >= value; }
  void submitted(uint64_t value) { submitted_.store(value, std::memory_order_release); }

 private:
  Device& device_;
  VkSemaphore semaphore_ = nullptr;
  std::atomic<uint64_t> reached_{0}, submitted_{0};
};

/// A moment of a stream; empty: one that is over.
struct Point {
  std::shared_ptr<Timeline> timeline;
  uint64_t value = 0;

  explicit operator bool() const { return timeline && value != 0; }
  bool submitted() const { return !*this || timeline->has_submitted(value); }
};

}  // namespace backplane::driver::vulkan
