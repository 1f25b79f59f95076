// backplane/driver/cxx/wait.hpp: deadlines for entries that take timeout_ns, and a polling wait for runtimes without timed waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "../../driver.h"

namespace backplane::driver {

/// The end of a wait. BP_NO_TIMEOUT has none; so has anything longer than a century, which would overflow the clock.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(uint64_t timeout_ns) : asks_only_(timeout_ns == 0), endless_(timeout_ns > kCentury) {
    if (!asks_only_ && !endless_) at_ = Clock::now() + std::chrono::nanoseconds(timeout_ns);
  }

  /// True for timeout 0: look once, do not wait.
  bool asks_only() const { return asks_only_; }
  bool endless() const { return endless_; }
  Clock::time_point at() const { return at_; }
  /// What is left, as a timeout for another wait.
  uint64_t left_ns() const {
    if (endless_) return BP_NO_TIMEOUT;
    if (asks_only_) return 0;
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(at_ - Clock::now()).count();
    return left > 0 ? static_cast<uint64_t>(left) : 0;
  }
  bool passed() const { return asks_only_ || (!endless_ && Clock::now() >= at_); }

  /// Waits until over(), which is called with the lock held, is true. False if the deadline passed first.
  template <class Over>
  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Over&& over) const {
    if (endless_) {
      changed.wait(lock, over);
    } else if (!asks_only_) {
      changed.wait_until(lock, at_, over);
    }
    return over();
  }

 private:
  static constexpr uint64_t kCentury = 100ull * 365 * 24 * 3600 * 1000000000;
  bool asks_only_;
  bool endless_;
  Clock::time_point at_{};
};

/// Waits until `ask` returns something else than BP_PENDING (or BP_TIMEOUT, for runtimes that name it so), and returns that; BP_TIMEOUT
/// when the deadline passes first. Looks often at the beginning and every millisecond in a long wait.
///
///     int32_t synchronize(int32_t device, uint64_t timeout_ns) {
///       return poll(timeout_ns, [&] { return vendor_idle(device) ? BP_OK : BP_PENDING; });
///     }
template <class Ask>
int32_t poll(uint64_t timeout_ns, Ask&& ask) {
  const Deadline deadline(timeout_ns);
  auto pause = std::chrono::microseconds(0);
  for (int looks = 0;; ++looks) {
    const int32_t status = ask();
    if (status != BP_PENDING && status != BP_TIMEOUT) return status;
    if (deadline.passed()) return BP_TIMEOUT;
    if (looks < 64) {
      std::this_thread::yield();
      continue;
    }
    pause = std::min(pause * 2 + std::chrono::microseconds(10), std::chrono::microseconds(1000));
    const auto wake = Deadline::Clock::now() + pause;
    std::this_thread::sleep_until(deadline.endless() ? wake : std::min(wake, deadline.at()));
  }
}

}  // namespace backplane::driver
