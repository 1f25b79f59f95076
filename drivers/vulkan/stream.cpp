// drivers/vulkan/stream.cpp: submits work, and does what the host has to do between.
#include "stream.h"

#include "device.h"

namespace backplane::driver::vulkan {

Stream::Stream(Device& device, Queue& queue)
    : device_(device), queue_(queue), timeline_(std::make_shared<Timeline>(device)), pool_(device) {}

Stream::~Stream() {
  finish();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

Commands& Stream::take_commands() {
  device_.check();
  while (!busy_.empty() && timeline_->has(busy_.front().first)) {
    busy_.front().second->recycle();
    idle_.push_back(std::move(busy_.front().second));
    busy_.pop_front();
  }
  while (!kept_.empty() && timeline_->has(kept_.front().first)) kept_.pop_front();
  if (idle_.empty()) idle_.push_back(std::make_unique<Commands>(device_, pool_));
  return *idle_.back();
}

Point Stream::add(Step&& step) {
  step.value = last_ + 1;
  if (held_.empty() && !step.host) {
    hand_over(step);
  } else {
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
    held_.push_back(std::move(step));
    changed_.notify_all();
  }
  return {timeline_, ++last_};
}

Point Stream::run(VkCommandBuffer commands, std::shared_ptr<void> keep) {
  std::lock_guard lock(mutex_);
  device_.check();
  while (!kept_.empty() && timeline_->has(kept_.front().first)) kept_.pop_front();
  Step step;
  step.commands = commands;
  kept_.emplace_back(last_ + 1, std::move(keep));
  try {
    return add(std::move(step));
  } catch (...) {
    kept_.pop_back();
    throw;
  }
}

Point Stream::run(const Work& work) {
  if (work.record) return submit(work.record);
  device_.check();
  return host([this, function = work.host](int32_t status) {
    if (status != BP_OK) return;
    try {
      function();
    } catch (const std::exception& error) {
      device_.fail(BP_FAULT, std::string("a copy by the host failed: ") + error.what());
    }
  });
}

Point Stream::host(std::function<void(int32_t status)> function) {
  std::lock_guard lock(mutex_);
  Step step;
  step.host = std::move(function);
  return add(std::move(step));
}

void Stream::wait_for(const Point& point) {
  if (!point || point.timeline == timeline_) return;
  Device& of = point.timeline->device();
  if (&of == &device_ && point.submitted()) {
    std::lock_guard lock(mutex_);
    device_.check();
    Step step;
    step.after = point;
    add(std::move(step));
    return;
  }
  // An error of that device is not this one's.
  host([&of, point](int32_t) { of.finish(point); });
}

Point Stream::last() {
  std::lock_guard lock(mutex_);
  return {timeline_, last_};
}

int32_t Stream::query() {
  device_.check();
  return device_.status(last());
}

int32_t Stream::wait(const Deadline& deadline) {
  device_.check();
  return device_.wait(last(), deadline);
}

void Stream::finish() noexcept {
  device_.finish(last());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return held_.empty(); });
}

void Stream::hand_over(const Step& step) {
  const VkSemaphore signal = timeline_->get();
  auto values = vk<VkTimelineSemaphoreSubmitInfo>();
  values.signalSemaphoreValueCount = 1;
  values.pSignalSemaphoreValues = &step.value;
  auto what = vk<VkSubmitInfo>(&values);
  what.signalSemaphoreCount = 1;
  what.pSignalSemaphores = &signal;
  VkSemaphore wait = nullptr;
  constexpr VkFlags where = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  if (step.after) {
    wait = step.after.timeline->get();
    values.waitSemaphoreValueCount = what.waitSemaphoreCount = 1;
    values.pWaitSemaphoreValues = &step.after.value;
    what.pWaitSemaphores = &wait;
    what.pWaitDstStageMask = &where;
  }
  if (step.commands) {
    what.commandBufferCount = 1;
    what.pCommandBuffers = &step.commands;
  }
  VkResult code;
  {
    std::lock_guard lock(queue_.mutex);
    code = device_.calls().vkQueueSubmit(queue_.handle, 1, &what, nullptr);
  }
  if (code != VK_SUCCESS) device_.refused(code, "vkQueueSubmit");
  timeline_->submitted(step.value);
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !held_.empty(); });
    if (held_.empty()) return;
    Step& step = held_.front();  // stays where it is: a deque grows at its end
    lock.unlock();
    do_step(step);
    step.host = nullptr;  // what it holds ends here, without the lock
    lock.lock();
    held_.pop_front();
    changed_.notify_all();
  }
}

void Stream::do_step(const Step& step) noexcept {
  const Point before{timeline_, step.value - 1};
  if (!step.host && device_.sticky() == BP_OK) {
    try {
      return hand_over(step);
    } catch (const std::exception& error) {
      device_.fail(BP_FAULT, std::string("held back work could not be queued: ") + error.what());
    }
  }
  device_.finish(before);
  if (step.host) step.host(device_.sticky());
  timeline_->signal(step.value);
}

}  // namespace backplane::driver::vulkan
