// distributed/native_watch.cpp: the thread that watches communicators.
#include "distributed/native_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "distributed/communicator.h"
#include "runtime/wait.h"

namespace backplane::distributed {
namespace native_watch_impl {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};

// Never destroyed: its thread is not joined, and may run last.
class Watch {
 public:
  static Watch& of_process() {
    static Watch* const watch = new Watch();
    return *watch;
  }

  void add(const std::shared_ptr<Communicator>& communicator) {
    const std::lock_guard<std::mutex> lock(mutex_);
    unreported_.clear();  // the program continues with another group
    communicators_.push_back(communicator);
    if (communicators_.size() == 1 && !is_running_) {
      is_running_ = true;
      set_wait_check([] { of_process().check(); });
      std::thread([this] { run(); }).detach();
    }
  }

  void keep_unreported(const std::exception_ptr& error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    unreported_.push_back({error, std::this_thread::get_id()});
  }

  void wake() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      has_work_ = true;
    }
    arrived_.notify_one();
  }

 private:
  std::vector<std::shared_ptr<Communicator>> alive() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<Communicator>> communicators;
    for (auto communicator = communicators_.begin(); communicator != communicators_.end();) {
      if (auto held = communicator->lock()) {
        communicators.push_back(std::move(held));
        ++communicator;
      } else {
        communicator = communicators_.erase(communicator);
      }
    }
    return communicators;
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
        for (const auto& communicator : alive()) is_busy |= communicator->look();
      }
    }
  }

  void check() {
    for (const auto& communicator : alive()) {
      if (const std::exception_ptr error = communicator->check_for_user()) std::rethrow_exception(error);
    }
    // Checked after the communicators: one that is being aborted holds its lock until its error is stored here.
    std::exception_ptr error;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto of_others = [](const Unreported& one) { return one.aborter != std::this_thread::get_id(); };
      const auto found = std::find_if(unreported_.begin(), unreported_.end(), of_others);
      if (found == unreported_.end()) return;
      error = found->error;
      unreported_.erase(found);
    }
    std::rethrow_exception(error);
  }

  std::mutex mutex_;  // protects what follows
  std::condition_variable arrived_;
  std::vector<std::weak_ptr<Communicator>> communicators_;
  struct Unreported {
    std::exception_ptr error;
    std::thread::id aborter;  // this thread knows the error
  };
  std::vector<Unreported> unreported_;
  bool is_running_ = false, has_work_ = false;
};

}  // namespace
}  // namespace native_watch_impl

void watch(const std::shared_ptr<Communicator>& communicator) { native_watch_impl::Watch::of_process().add(communicator); }
void keep_unreported(const std::exception_ptr& error) { native_watch_impl::Watch::of_process().keep_unreported(error); }
void wake_watch() { native_watch_impl::Watch::of_process().wake(); }

}  // namespace backplane::distributed
