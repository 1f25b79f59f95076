// drivers/vulkan/device.cpp: makes the device, its queues and streams, waits for their work, and keeps why it failed.
#include "device.h"

#include <algorithm>

#include "pipelines.h"
#include "transfer.h"

namespace backplane::driver::vulkan {

// ---- timelines

Timeline::Timeline(Device& device) : device_(device) {
  auto type = vk<VkSemaphoreTypeCreateInfo>();
  type.semaphoreType = 1;
  const auto wanted = vk<VkSemaphoreCreateInfo>(&type);
  vulkan::check(device.calls().vkCreateSemaphore(device.get(), &wanted, nullptr, &semaphore_), "vkCreateSemaphore");
}

Timeline::~Timeline() { device_.calls().vkDestroySemaphore(device_.get(), semaphore_, nullptr); }

bool Timeline::has(uint64_t value) {
  if (reached_.load(std::memory_order_acquire) >= value) return true;
  uint64_t now = 0;
  const VkResult code = device_.calls().vkGetSemaphoreCounterValue(device_.get(), semaphore_, &now);
  if (code != VK_SUCCESS) device_.refused(code, "vkGetSemaphoreCounterValue");
  uint64_t known = reached_.load(std::memory_order_relaxed);
  while (known < now && !reached_.compare_exchange_weak(known, now, std::memory_order_acq_rel)) {
  }
  return now >= value;
}

VkResult Timeline::wait(uint64_t value, uint64_t timeout_ns) {
  auto what = vk<VkSemaphoreWaitInfo>();
  what.semaphoreCount = 1;
  what.pSemaphores = &semaphore_;
  what.pValues = &value;
  return device_.calls().vkWaitSemaphores(device_.get(), &what, timeout_ns);
}

void Timeline::signal(uint64_t value) noexcept {
  auto what = vk<VkSemaphoreSignalInfo>();
  what.semaphore = semaphore_;
  what.value = value;
  const VkResult code = device_.calls().vkSignalSemaphore(device_.get(), &what);
  if (code != VK_SUCCESS) device_.fail(BP_DEVICE_LOST, "vkSignalSemaphore: " + code_name(code));
  submitted(value);
}

// ---- the device

Device::Device(const Session& session, int32_t index, const DeviceInfo& info, const Settings& settings)
    : session_(session),
      index_(index),
      info_(info),
      device_(make_device(session, info)),
      calls_(session, device_),
      arguments_(std::make_unique<ArgumentPool>(*this)),
      stamps_(std::make_unique<Stamps>(*this)) {
  for (uint32_t i = 0; i < info.queues; ++i) {
    queues_.push_back(std::make_unique<Queue>());
    calls_.vkGetDeviceQueue(device_, info.family, i, &queues_.back()->handle);
  }
  default_ = std::make_shared<Stream>(*this, queue(0));
  transfer_ = std::make_unique<Transfer>(*this);
  pipelines_ = std::make_unique<Pipelines>(*this, settings.cache);
}

Device::~Device() {
  end_streams();
  // While the device is there.
  pipelines_.reset();
  transfer_.reset();
  stamps_.reset();
  arguments_.reset();
  calls_.vkDestroyDevice(device_, nullptr);
}

Queue& Device::queue(int32_t priority) {
  if (queues_.size() == 1) return *queues_[0];
  if (priority < 0) return *queues_.back();
  return *queues_[created_++ % (queues_.size() - 1)];
}

Stream* Device::create_stream(int32_t priority) {
  check();
  auto made = std::make_shared<Stream>(*this, queue(priority));
  std::lock_guard lock(mutex_);
  streams_.push_back(made);
  return made.get();
}

std::shared_ptr<Stream> Device::stream(bp_stream* stream) const {
  std::lock_guard lock(mutex_);
  if (!stream) return default_;
  for (const auto& one : streams_) {
    if (reinterpret_cast<bp_stream*>(one.get()) == stream) return one;
  }
  throw Error(BP_INVALID_ARGUMENT, format("0x%llx is no stream of device %d", wide(reinterpret_cast<uintptr_t>(stream)), index_));
}

void Device::destroy_stream(bp_stream* stream) {
  if (!stream) throw Error(BP_INVALID_ARGUMENT, "stream_destroy: the default stream is not destroyed");
  const std::shared_ptr<Stream> last = this->stream(stream);
  {
    std::lock_guard lock(mutex_);
    streams_.erase(std::find(streams_.begin(), streams_.end(), last));
  }
  last->finish();  // here: a thread in synchronize() may keep the object a little longer
}

std::vector<std::shared_ptr<Stream>> Device::streams() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Stream>> all = streams_;
  all.push_back(default_);
  return all;
}

int32_t Device::synchronize(const Deadline& deadline) {
  check();
  for (const auto& one : streams()) {
    if (const int32_t status = one->wait(deadline)) return status;
  }
  return BP_OK;
}

void Device::finish_streams() noexcept {
  for (const auto& one : streams()) one->finish();
  calls_.vkDeviceWaitIdle(device_);  // of one that is lost, whose semaphores nobody waits for
}

void Device::end_streams() noexcept {
  std::vector<std::shared_ptr<Stream>> all;
  std::lock_guard lock(mutex_);
  all.swap(streams_);
  all.clear();
  default_.reset();
}

// ---- errors

void Device::throw_sticky() const {
  std::lock_guard lock(mutex_);
  throw Error(static_cast<bp_status>(sticky()), format("device %d is not usable any more: %s", index_, why_.c_str()));
}

void Device::fail(int32_t status, const std::string& why) noexcept {
  std::lock_guard lock(mutex_);
  if (sticky() == BP_DEVICE_LOST || sticky() == status) return;
  why_ = why;
  sticky_.store(status, std::memory_order_release);
}

void Device::refused(VkResult code, const char* call) {
  const Error error = failure(code, call);
  if (error.status() == BP_DEVICE_LOST) fail(BP_DEVICE_LOST, error.what());
  throw error;
}

// ---- waits

namespace {

constexpr uint64_t kSliceNs = 50'000'000;  // between two looks at whether the device still works

}  // namespace

int32_t Device::status(const Point& point) {
  if (point && !point.timeline->has(point.value)) return BP_PENDING;
  check();
  return BP_OK;
}

int32_t Device::wait(const Point& point, const Deadline& deadline) {
  if (deadline.asks_only()) {
    const int32_t now = status(point);
    return now == BP_PENDING ? BP_TIMEOUT : now;
  }
  while (point && !point.timeline->has(point.value)) {
    check();
    if (deadline.passed()) return BP_TIMEOUT;
    const VkResult code = point.timeline->wait(point.value, std::min(deadline.left_ns(), kSliceNs));
    if (code != VK_SUCCESS && code != VK_TIMEOUT) refused(code, "vkWaitSemaphores");
  }
  check();
  return BP_OK;
}

void Device::finish(const Point& point) noexcept {
  try {
    while (point && sticky() != BP_DEVICE_LOST && !point.timeline->has(point.value)) {
      const VkResult code = point.timeline->wait(point.value, kSliceNs);
      if (code != VK_SUCCESS && code != VK_TIMEOUT) refused(code, "vkWaitSemaphores");
    }
  } catch (const std::exception& error) {
    fail(BP_DEVICE_LOST, error.what());
  }
}

void Device::take(uint64_t bytes) {
  check();
  uint64_t used = used_.load();
  do {
    if (bytes > info_.max_allocation || bytes > info_.memory - std::min(info_.memory, used)) {
      throw Error(BP_OUT_OF_MEMORY, format("%llu bytes on device %d, which has %llu in use, %llu in all and gives %llu at a time",
                                           wide(bytes), index_, wide(used), wide(info_.memory), wide(info_.max_allocation)));
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
}

void Device::memory_info(uint64_t* free_bytes, uint64_t* total_bytes) const {
  auto budget = vk<VkPhysicalDeviceMemoryBudgetPropertiesEXT>();
  auto memory = vk<VkPhysicalDeviceMemoryProperties2>(&budget);
  session_.vkGetPhysicalDeviceMemoryProperties2(session_.physical()[info_.index], &memory);
  const uint32_t heap = memory.memoryProperties.memoryTypes[info_.memory_type].heapIndex;
  const uint64_t left = budget.heapBudget[heap] - std::min(budget.heapBudget[heap], budget.heapUsage[heap]);
  *total_bytes = info_.memory;
  *free_bytes = std::min(left, info_.memory - std::min(info_.memory, used_.load()));
}

}  // namespace backplane::driver::vulkan
