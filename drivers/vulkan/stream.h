// drivers/vulkan/stream.h: a stream: pieces of work that follow each other: commands of the device, and functions of the host.
//
// Streams share the queues of their device. All that is in a queue runs without the host's help: a piece that waits for a function of the
// host, for another device, or for work that itself is held back, is held back as well, and a thread of the stream submits it when its
// time has come. So no stream waits in a queue for another one that is behind it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <backplane/driver/cxx/wait.hpp>

#include "commands.h"
#include "timeline.h"

namespace backplane::driver::vulkan {

class Device;

/// A queue of the device's, which several streams share.
struct Queue {
  VkQueue handle = nullptr;
  std::mutex mutex;
};

/// A piece of work that is not queued yet: one of the two.
struct Work {
  std::function<void(Commands& commands)> record;
  std::function<void()> host;
};

/// Thread safe.
class Stream {
 public:
  Stream(Device& device, Queue& queue);
  /// Waits for its work.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }

  /// Queues what `record(commands)` records. Throws Error; the device's sticky one first.
  template <class Record>
  Point submit(Record&& record);
  /// Queues commands that were recorded before, and may run more than once; `keep` lives until they have run.
  Point run(VkCommandBuffer commands, std::shared_ptr<void> keep);
  Point run(const Work& work);
  /// Queues a function of the host, which gets BP_OK or the device's sticky status.
  Point host(std::function<void(int32_t status)> function);
  /// What is queued later comes after that, too.
  void wait_for(const Point& point);

  /// All that is queued so far.
  Point last();
  /// BP_OK, BP_PENDING or the device's sticky status.
  int32_t query();
  int32_t wait(const Deadline& deadline);
  /// Waits whatever the device's state is.
  void finish() noexcept;

 private:
  struct Step {
    uint64_t value = 0;
    VkCommandBuffer commands = nullptr;  // may be none: the step waits alone
    Point after;                         // waited for on the device
    std::function<void(int32_t status)> host;
  };
  // With the mutex held.
  Commands& take_commands();
  Point add(Step&& step);

  void hand_over(const Step& step);
  void work();
  void do_step(const Step& step) noexcept;

  Device& device_;
  Queue& queue_;
  const std::shared_ptr<Timeline> timeline_;
  std::mutex mutex_;  // of what follows
  CommandPool pool_;
  uint64_t last_ = 0;
  std::deque<std::pair<uint64_t, std::unique_ptr<Commands>>> busy_;
  std::vector<std::unique_ptr<Commands>> idle_;
  std::deque<std::pair<uint64_t, std::shared_ptr<void>>> kept_;
  std::deque<Step> held_;  // the first one is being done
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread worker_;  // from the first held step on
};

template <class Record>
Point Stream::submit(Record&& record) {
  std::lock_guard lock(mutex_);
  Commands& commands = take_commands();
  commands.begin(VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
  record(commands);
  commands.end();
  Step step;
  step.commands = commands.get();
  busy_.emplace_back(last_ + 1, std::move(idle_.back()));
  idle_.pop_back();
  try {
    return add(std::move(step));
  } catch (...) {
    idle_.push_back(std::move(busy_.back().second));
    busy_.pop_back();
    throw;
  }
}

}  // namespace backplane::driver::vulkan
