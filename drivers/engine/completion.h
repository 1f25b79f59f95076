// drivers/engine/completion.h: one record of an event: a point in a stream that is reached once, and the waits for it.
//
// Counted by references: the event holds its latest record, a queued record or wait task holds its own, so an event can be recorded again
// or destroyed while earlier records are still on their way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include <backplane/driver/cxx/wait.hpp>

namespace backplane::driver {

class Stream;

/// Nanoseconds of the clock that event_elapsed compares.
int64_t now_ns();

class Completion {
 public:
  static Completion* create() { return new Completion; }
  Completion* ref() {
    refs_.fetch_add(1, std::memory_order_relaxed);
    return this;
  }
  void unref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// True if the caller holds the only reference: it may then be reset for the next record.
  bool unique() const { return refs_.load(std::memory_order_acquire) == 1; }
  void reset() { done_.store(false, std::memory_order_relaxed); }

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// When it completed. Of a done one.
  int64_t time_ns() const { return time_ns_; }

  /// Completes it where nobody can wait yet: the record found its stream idle.
  void complete_unshared(int64_t time_ns) {
    time_ns_ = time_ns;
    done_.store(true, std::memory_order_release);
  }

  /// Completes it, wakes the waiting threads and gives back the inline streams that are parked here: the caller resumes them.
  std::vector<Stream*> complete(int64_t time_ns);

  /// Parks an inline stream until complete(). False if it is done already, and then the stream continues without parking.
  bool park(Stream& stream);

  /// Waits on a host thread or a worker. spin: look for a moment before sleeping. False if the deadline passed.
  bool wait(const Deadline& deadline, bool spin);

 private:
  Completion() = default;
  ~Completion() = default;

  std::atomic<uint32_t> refs_{1};
  std::atomic<bool> done_{false};
  int64_t time_ns_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stream*> parked_;
};

}  // namespace backplane::driver
