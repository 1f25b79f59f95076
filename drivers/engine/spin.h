// drivers/engine/spin.h: a lock for a few nanoseconds of work, and the short wait before a thread goes to sleep.
//
// Waking a sleeping thread costs microseconds on the caller. So a stream's worker looks for more work for a moment before it sleeps, and
// a waiting host thread does the same; on a machine with one processor nobody spins.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace backplane::driver {

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Held for a few instructions, never over a call. Meets BasicLockable.
class SpinLock {
 public:
  void lock() {
    for (int tries = 0; held_.exchange(true, std::memory_order_acquire); ++tries) {
      // The holder may have lost its processor: give ours away after a while.
      if (tries < 64) {
        cpu_relax();
      } else {
        std::this_thread::yield();
      }
    }
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

/// Processors that this process may use.
inline int processors() {
  static const int count = [] {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  }();
  return count;
}

/// Asks `done` until it is true or the time is over, and returns its last answer. For a thread that somebody waits for.
template <class Done>
bool spin_for(std::chrono::nanoseconds time, Done&& done) {
  if (done()) return true;
  if (processors() < 2) return false;
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      cpu_relax();
      if (done()) return true;
    }
    std::this_thread::yield();  // other threads may need this processor
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

/// The same for idle workers, of which no more than half as many as there are processors do it at once.
template <class Done>
bool idle_spin_for(std::chrono::nanoseconds time, Done&& done) {
  static std::atomic<int> spinners{0};
  struct Spinner {
    std::atomic<int>& count;
    const bool may;
    ~Spinner() { count.fetch_sub(1, std::memory_order_relaxed); }
  } spinner{spinners, spinners.fetch_add(1, std::memory_order_relaxed) < processors() / 2};
  return spinner.may ? spin_for(time, done) : done();
}

}  // namespace backplane::driver
