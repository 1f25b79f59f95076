// drivers/vulkan/device.h: a VkDevice with its queues and streams, its account of memory, and why it failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "commands.h"
#include "stamps.h"
#include "stream.h"
#include "survey.h"

namespace backplane::driver::vulkan {

class Transfer;
class Pipelines;

class Device {
 public:
  Device(const Session& session, int32_t index, const DeviceInfo& info, const Settings& settings);
  /// All streams of all devices have ended.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int32_t index() const { return index_; }
  const DeviceInfo& info() const { return info_; }
  const Session& session() const { return session_; }
  VkDevice get() const { return device_; }
  const DeviceCalls& calls() const { return calls_; }
  ArgumentPool& arguments() { return *arguments_; }
  Stamps& stamps() { return *stamps_; }
  Transfer& transfer() { return *transfer_; }
  Pipelines& pipelines() { return *pipelines_; }

  /// What marks its addresses where several devices have the same ones.
  uint64_t tag() const { return info_.tagged ? static_cast<uint64_t>(index_) << kTagBit : 0; }
  static constexpr int kTagBit = 56;
  static uint64_t untagged(uint64_t address) { return address & ((uint64_t{1} << kTagBit) - 1); }

  Queue& queue(int32_t priority);
  int32_t highest_priority() const { return queues_.size() > 1 ? -1 : 0; }
  Stream* create_stream(int32_t priority);
  /// Waits for its work.
  void destroy_stream(bp_stream* stream);
  /// NULL: the default one. Throws for what is no stream of this device.
  std::shared_ptr<Stream> stream(bp_stream* stream) const;
  int32_t synchronize(const Deadline& deadline);
  /// For close: waits whatever the device's state is, and ends the streams.
  void finish_streams() noexcept;
  void end_streams() noexcept;

  /// Throws the sticky error, if there is one.
  void check() const {
    if (sticky_.load(std::memory_order_acquire) != BP_OK) [[unlikely]]
      throw_sticky();
  }
  int32_t sticky() const { return sticky_.load(std::memory_order_acquire); }
  void fail(int32_t status, const std::string& why) noexcept;
  /// Throws for an error of Vulkan's; the device keeps it if it is lost.
  [[noreturn]] void refused(VkResult code, const char* call);

  /// BP_OK, BP_PENDING, or the sticky error, which is thrown.
  int32_t status(const Point& point);
  int32_t wait(const Point& point, const Deadline& deadline);
  /// Waits until it is reached, or never will be.
  void finish(const Point& point) noexcept;

  /// Keeps account of memory: the heaps of several parts are one, and drivers promise more than there is.
  void take(uint64_t bytes);
  void give(uint64_t bytes) { used_ -= bytes; }
  /// Of a device with VK_EXT_memory_budget.
  void memory_info(uint64_t* free_bytes, uint64_t* total_bytes) const;

 private:
  [[noreturn]] void throw_sticky() const;
  std::vector<std::shared_ptr<Stream>> streams() const;

  const Session& session_;
  const int32_t index_;
  const DeviceInfo info_;
  const VkDevice device_;
  const DeviceCalls calls_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::unique_ptr<ArgumentPool> arguments_;
  std::unique_ptr<Stamps> stamps_;
  std::atomic<uint64_t> used_{0};
  std::atomic<int32_t> sticky_{BP_OK};
  std::atomic<uint32_t> created_{0};
  mutable std::mutex mutex_;  // of what follows
  std::string why_;
  std::vector<std::shared_ptr<Stream>> streams_;  // all but the default one
  std::shared_ptr<Stream> default_;
  std::unique_ptr<Transfer> transfer_;
  std::unique_ptr<Pipelines> pipelines_;
};

}  // namespace backplane::driver::vulkan
