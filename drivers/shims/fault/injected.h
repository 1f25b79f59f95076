// drivers/shims/fault/injected.h: the faults that are asked for, the devices that have suffered one, and the work that will never complete.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <backplane/driver/cxx/options.hpp>
#include <backplane/driver/cxx/wait.hpp>

#include "../../engine/fault_trigger.h"

namespace backplane::driver::fault {

/// One kind of fault: when it strikes, and the option that asked for it.
class FaultKind {
 public:
  FaultKind(Options& options, const char* key) : FaultKind(key, options.text(key, "", FaultTrigger::kForm)) {}

  bool armed() const { return trigger_.armed(); }
  bool strikes() { return trigger_.strikes(); }
  /// "a copy was aborted (injected by fault.copy=17)"
  std::string text(const std::string& what) const { return what + " (injected by " + asked_ + ")"; }

 private:
  FaultKind(const char* key, const std::string& given)
      : trigger_((std::string("fault.") + key).c_str(), given), asked_(std::string("fault.") + key + "=" + given) {}

  FaultTrigger trigger_;
  const std::string asked_;
};

/// What has happened to one device.
class DeviceFault {
 public:
  ~DeviceFault() {
    release_held([](const Held&) { return true; });
  }

  int32_t sticky() const { return sticky_.load(std::memory_order_acquire); }
  /// Throws the sticky error, if there is one.
  void check() const {
    if (sticky() == BP_OK) [[likely]]
      return;
    std::lock_guard lock(mutex_);
    throw Error(static_cast<bp_status>(sticky()), text_);
  }
  /// From now on every call fails so; a lost device may follow a fault.
  void suffer(bp_status status, const std::string& text) noexcept {
    std::lock_guard lock(mutex_);
    if (sticky() >= status) return;
    text_ = text;
    sticky_.store(status, std::memory_order_release);
    changed_.notify_all();
  }

  // Hanging: what is queued on such a stream is kept and never runs.

  bool hangs() const { return any_hung_.load(std::memory_order_acquire); }
  bool hangs(bp_stream* stream) const { return hangs_in(streams_, stream); }
  bool hangs(bp_event* event) const { return hangs_in(events_, event); }
  void hang(bp_stream* stream) {
    std::lock_guard lock(mutex_);
    streams_.insert(stream);
    any_hung_.store(true, std::memory_order_release);
  }
  void set_hangs(bp_event* event, bool does) {
    std::lock_guard lock(mutex_);
    if (does) {
      events_.insert(event);
    } else {
      events_.erase(event);
    }
  }
  /// Keeps what ends a piece of work (a destroy, a callback) until the stream is destroyed or the driver closed.
  void hold(bp_stream* stream, std::function<void()> end) {
    std::lock_guard lock(mutex_);
    held_.push_back({stream, std::move(end)});
  }
  void forget(bp_stream* stream) {
    if (!hangs()) return;
    {
      std::lock_guard lock(mutex_);
      streams_.erase(stream);
    }
    release_held([&](const Held& one) { return one.stream == stream; });
  }
  /// A wait for what never completes: ends with the timeout, or with a sticky error.
  [[noreturn]] void wait_without_end(uint64_t timeout_ns) {
    const Deadline deadline(timeout_ns);
    std::unique_lock lock(mutex_);
    const bool failed = deadline.wait(changed_, lock, [&] { return sticky() != BP_OK; });
    if (failed) throw Error(static_cast<bp_status>(sticky()), text_);
    throw Error(BP_TIMEOUT, "the work has not completed");
  }

 private:
  struct Held {
    bp_stream* stream;
    std::function<void()> end;
  };

  template <class Handle>
  bool hangs_in(const std::set<Handle*>& hung, Handle* handle) const {
    if (!hangs()) return false;
    std::lock_guard lock(mutex_);
    return hung.count(handle) != 0;
  }
  template <class Which>
  void release_held(Which which) {
    std::vector<Held> ended, kept;
    {
      std::lock_guard lock(mutex_);
      for (Held& one : held_) (which(one) ? ended : kept).push_back(std::move(one));
      held_.swap(kept);
    }
    for (Held& one : ended) one.end();
  }

  std::atomic<int32_t> sticky_{BP_OK};
  std::atomic<bool> any_hung_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::set<bp_stream*> streams_;
  std::set<bp_event*> events_;
  std::vector<Held> held_;
};

}  // namespace backplane::driver::fault
