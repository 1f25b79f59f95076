// drivers/vulkan/transfer.h: copies between device memory and memory of the host that the device cannot use: in parts, through two buffers
// that both reach. The caller waits.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "stream.h"

namespace backplane::driver::vulkan {

class Transfer {
 public:
  explicit Transfer(Device& device) : device_(device) {}

  void to_device(VkBuffer buffer, uint64_t offset, const char* from, uint64_t bytes);
  void to_host(char* to, VkBuffer buffer, uint64_t offset, uint64_t bytes);

 private:
  static constexpr uint64_t kPart = uint64_t{4} << 20;
  struct Half {
    std::unique_ptr<Buffer> buffer;
    Point busy;
  };
  Half& half(uint64_t part);
  void wait(const Point& point);

  Device& device_;
  std::mutex mutex_;
  Half halves_[2];
  std::unique_ptr<Stream> stream_;  // waits for nothing
};

}  // namespace backplane::driver::vulkan
