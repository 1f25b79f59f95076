// drivers/vulkan/transfer.cpp: while the device copies one part, the host copies the other.
#include "transfer.h"

#include <algorithm>
#include <cstring>

#include "device.h"

namespace backplane::driver::vulkan {

Transfer::Half& Transfer::half(uint64_t part) {
  if (!stream_) stream_ = std::make_unique<Stream>(device_, device_.queue(0));
  Half& one = halves_[part % 2];
  if (!one.buffer) {
    one.buffer = std::make_unique<Buffer>(device_.calls(), device_.get(), kPart, device_.info().host_type, Buffer::Mapped::yes);
  }
  return one;
}

void Transfer::wait(const Point& point) { device_.wait(point, Deadline(BP_NO_TIMEOUT)); }

void Transfer::to_device(VkBuffer buffer, uint64_t offset, const char* from, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  for (uint64_t at = 0; at < bytes; at += kPart) {
    Half& one = half(at / kPart);
    wait(one.busy);
    const VkBufferCopy part{0, offset + at, std::min(kPart, bytes - at)};
    std::memcpy(one.buffer->host(), from + at, part.size);
    one.busy =
        stream_->submit([&](Commands& commands) { device_.calls().vkCmdCopyBuffer(commands.get(), one.buffer->get(), buffer, 1, &part); });
  }
  wait(stream_->last());
}

void Transfer::to_host(char* to, VkBuffer buffer, uint64_t offset, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto begin = [&](uint64_t at) {
    Half& one = half(at / kPart);
    const VkBufferCopy part{offset + at, 0, std::min(kPart, bytes - at)};
    one.busy =
        stream_->submit([&](Commands& commands) { device_.calls().vkCmdCopyBuffer(commands.get(), buffer, one.buffer->get(), 1, &part); });
  };
  begin(0);
  for (uint64_t at = 0; at < bytes; at += kPart) {
    if (at + kPart < bytes) begin(at + kPart);
    Half& one = half(at / kPart);
    wait(one.busy);
    std::memcpy(to + at, one.buffer->host(), std::min(kPart, bytes - at));
  }
}

}  // namespace backplane::driver::vulkan
