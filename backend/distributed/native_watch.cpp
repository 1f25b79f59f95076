// distributed/native_watch.cpp: see native_watch.h.
#include "distributed/native_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "distributed/native_engine.h"
#include "runtime/wait.h"

namespace backplane::distributed {
namespace native_watch_impl {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};

// Never destroyed: its thread, which nothing joins, may be the last to run.
class Watch {
 public:
  static Watch& of_process() {
    static Watch* const watch = new Watch();
    return *watch;
  }

  void add(const std::shared_ptr<NativeEngine>& engine) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_.clear();  // the program goes on
    engines_.push_back(engine);
    if (engines_.size() == 1 && !is_running_) {
      is_running_ = true;
      set_wait_check([] { of_process().check(); });
      std::thread([this] { run(); }).detach();
    }
  }

  void keep_lost(const std::exception_ptr& error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_.push_back({error, std::this_thread::get_id()});
  }

  void wake() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      has_work_ = true;
    }
    arrived_.notify_one();
  }

 private:
  std::vector<std::shared_ptr<NativeEngine>> alive() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<NativeEngine>> engines;
    for (auto engine = engines_.begin(); engine != engines_.end();) {
      if (auto held = engine->lock()) {
        engines.push_back(std::move(held));
        ++engine;
      } else {
        engine = engines_.erase(engine);
      }
    }
    return engines;
  }

  void run() {
    pthread_setname_np(pthread_self(), "ccl_watch");
    while (true) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        arrived_.wait(lock, [&] { return has_work_; });
        has_work_ = false;
      }
      bool is_busy = true;
      while (is_busy) {
        std::this_thread::sleep_for(kPeriod);
        is_busy = false;
        for (const auto& engine : alive()) is_busy |= engine->look();
      }
    }
  }

  void check() {
    for (const auto& engine : alive()) {
      if (const std::exception_ptr error = engine->check_for_user()) std::rethrow_exception(error);
    }
    // Behind the engines: one that is being aborted holds its lock until it is here.
    std::exception_ptr error;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto of_others = [](const Lost& one) { return one.aborter != std::this_thread::get_id(); };
      const auto found = std::find_if(lost_.begin(), lost_.end(), of_others);
      if (found == lost_.end()) return;
      error = found->error;
      lost_.erase(found);
    }
    std::rethrow_exception(error);
  }

  std::mutex mutex_;  // over all that follows
  std::condition_variable arrived_;
  std::vector<std::weak_ptr<NativeEngine>> engines_;
  struct Lost {
    std::exception_ptr error;
    std::thread::id aborter;  // who knows
  };
  std::vector<Lost> lost_;
  bool is_running_ = false, has_work_ = false;
};

}  // namespace
}  // namespace native_watch_impl

void watch(const std::shared_ptr<NativeEngine>& engine) { native_watch_impl::Watch::of_process().add(engine); }
void keep_lost(const std::exception_ptr& error) { native_watch_impl::Watch::of_process().keep_lost(error); }
void wake_watch() { native_watch_impl::Watch::of_process().wake(); }

}  // namespace backplane::distributed
