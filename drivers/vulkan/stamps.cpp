// drivers/vulkan/stamps.cpp: gives out queries, writes and reads them.
#include "stamps.h"

#include <chrono>
#include <cstring>

#include "device.h"

namespace backplane::driver::vulkan {

Stamp::~Stamp() {
  if (!owner_.on_device()) return;
  std::lock_guard lock(owner_.mutex_);
  owner_.free_.emplace_back(pool_, index_);  // there is room: it was reserved
}

void Stamp::write(Commands& commands) const {
  const DeviceCalls& calls = owner_.device_.calls();
  const Stamps::Pool pool = owner_.pool_of(*this);
  calls.vkCmdResetQueryPool(commands.get(), pool.queries, index_, 1);
  commands.barrier();
  calls.vkCmdWriteTimestamp(commands.get(), VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool.queries, index_);
  calls.vkCmdCopyQueryPoolResults(commands.get(), pool.queries, index_, 1, pool.times->get(), sizeof(uint64_t) * index_, sizeof(uint64_t),
                                  VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
}

Stamps::~Stamps() {
  for (const Pool& pool : pools_) device_.calls().vkDestroyQueryPool(device_.get(), pool.queries, nullptr);
}

bool Stamps::on_device() const { return device_.info().timestamp_bits != 0; }

uint64_t Stamps::now() const {
  if (!on_device()) {
    const auto host = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(host).count());
  }
  if (!device_.info().has_clock) return 0;
  const auto which = vk<VkCalibratedTimestampInfoEXT>();
  uint64_t ticks = 0, deviation = 0;
  return device_.calls().vkGetCalibratedTimestampsEXT(device_.get(), 1, &which, &ticks, &deviation) == VK_SUCCESS ? ticks : 0;
}

std::shared_ptr<Stamp> Stamps::make() {
  if (!on_device()) return std::make_shared<Stamp>(*this, 0, 0);
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    auto wanted = vk<VkQueryPoolCreateInfo>();
    wanted.queryType = VK_QUERY_TYPE_TIMESTAMP;
    wanted.queryCount = kOfPool;
    pools_.reserve(pools_.size() + 1);
    free_.reserve(kOfPool * (pools_.size() + 1));
    Pool made{};
    made.times =
        std::make_shared<Buffer>(device_.calls(), device_.get(), kOfPool * sizeof(uint64_t), device_.info().host_type, Buffer::Mapped::yes);
    check(device_.calls().vkCreateQueryPool(device_.get(), &wanted, nullptr, &made.queries), "vkCreateQueryPool");
    for (uint32_t i = 0; i < kOfPool; ++i) free_.emplace_back(pools_.size(), i);
    pools_.push_back(std::move(made));
  }
  const auto [pool, index] = free_.back();
  auto made = std::make_shared<Stamp>(*this, pool, index);
  free_.pop_back();
  return made;
}

Stamps::Pool Stamps::pool_of(const Stamp& stamp) {
  std::lock_guard lock(mutex_);
  return pools_[stamp.pool_];
}

uint64_t Stamps::ticks(const Stamp& stamp) {
  if (const uint64_t known = stamp.known_) return known;
  uint64_t value = 0;
  std::memcpy(&value, pool_of(stamp).times->host() + sizeof value * stamp.index_, sizeof value);
  return value;
}

int64_t Stamps::between(const Stamp& start, const Stamp& end) {
  // Where the counter has fewer bits it begins again, and the difference has as many.
  const uint32_t unused = on_device() ? 64 - device_.info().timestamp_bits : 0;
  const auto difference = static_cast<int64_t>((ticks(end) - ticks(start)) << unused) >> unused;
  const double tick_ns = on_device() ? static_cast<double>(device_.info().timestamp_ns) : 1.0;
  return static_cast<int64_t>(static_cast<double>(difference) * tick_ns);
}

}  // namespace backplane::driver::vulkan
