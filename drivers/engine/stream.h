// drivers/engine/stream.h: an in-order queue of host-side work, run by a worker thread of its own or inline on the calling threads.
//
// Exactly one thread at a time has the stream's *role*: it alone takes work off the queue and runs it. A stream with a worker leaves the
// role to the worker, except for blocking work that finds the stream idle. An inline stream gives it to whichever thread submits work while
// the stream is idle, and that thread also runs what others queue meanwhile. An inline stream that reaches a wait for an event parks itself
// in the event, keeping the role; the thread that completes the event then resumes it.
//
// Costs: submitting to an idle inline stream is three atomic operations and the work itself; submitting to a worker is one short lock and
// no allocation after warm-up (nodes are recycled), plus a wake-up if the worker sleeps.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include <backplane/driver.h>
#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/wait.hpp>

#include "completion.h"
#include "recorder.h"
#include "spin.h"

namespace backplane::driver {

class EngineDevice;

/// A piece of work. run is called exactly once, with BP_OK or with the device's sticky status, and then must not compute. What it throws
/// makes the device fault. The words are its arguments.
struct Job {
  void (*run)(Job& job, int32_t status);
  uint64_t words[6];
  WorkRecord* record = nullptr;  // of the work, whose begin and end the stream sets; NULL: not recorded
};

/// The job that calls work(status), which is small enough for the words.
template <class Work>
Job job_of(const Work& work) {
  static_assert(std::is_trivially_copyable_v<Work> && sizeof(Work) <= sizeof Job::words);
  Job job{[](Job& self, int32_t status) {
            alignas(Work) unsigned char kept[sizeof(Work)];
            std::memcpy(kept, self.words, sizeof kept);
            (*std::launder(reinterpret_cast<Work*>(kept)))(status);
          },
          {}};
  std::memcpy(job.words, &work, sizeof work);
  return job;
}

/// Marks on a stream around a vendor's own work, for Recorder::open_launch and close_launch.
inline Job begin_launch(WorkRecord* work) {
  return job_of([work](int32_t) { work->begin(); });
}
inline Job end_launch(WorkRecord* work) {
  return job_of([work](int32_t status) { work->end(status == BP_OK); });
}

class Stream {
 public:
  /// worker: the stream has a thread of its own.
  Stream(EngineDevice& device, bool worker, int32_t priority, const std::string& name);
  /// Completes what is queued, and ends the worker.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  EngineDevice& device() const { return device_; }

  /// Queues a job (an idle inline stream runs it now). Throws std::bad_alloc, and then the job was not taken.
  void submit(Job job) {
    if (!worker_ && claim()) {
      execute(job);
      finish_one();
      release();
    } else {
      push(Task::Kind::job, &job, nullptr);
    }
  }

  /// The same with a record, which is dropped if the job was not taken.
  void submit(Job job, Recorder::Owned record) {
    job.record = record.get();
    submit(job);
    static_cast<void>(record.release());  // the job's, which may be over by now
  }

  /// Queues work(status), of any size. The job owns it.
  template <class Work>
  void submit_owned(Work work, Recorder::Owned record = nullptr) {
    auto kept = std::make_unique<Work>(std::move(work));
    submit(job_of([at = kept.get()](int32_t status) {
             const std::unique_ptr<Work> one(at);
             (*one)(status);
           }),
           std::move(record));
    static_cast<void>(kept.release());  // the job's, which may be over by now
  }

  /// If the stream is idle, runs `body` now, in the stream's order, on this thread, and gives on what it throws. Else false.
  template <class Body>
  bool run_if_idle(Body&& body) {
    if (!claim()) return false;
    struct Release {
      Stream& stream;
      ~Release() {
        stream.finish_one();
        stream.release();
      }
    } release{*this};
    body();
    return true;
  }

  /// Runs `body` behind the work that is queued, and returns when it is done; gives on what it throws. After a fault it does not run.
  template <class Body>
  void run_blocking(Body&& body) {
    if (run_if_idle(body)) return;
    std::exception_ptr thrown;
    const Job job = job_of([&](int32_t status) {
      if (status != BP_OK) return;
      try {
        body();
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    wait(push(Task::Kind::job, &job, nullptr), Deadline(BP_NO_TIMEOUT));
    if (thrown) std::rethrow_exception(thrown);
  }

  /// Queues the point that completes the record. Takes a reference.
  void record(Completion& completion) { push(Task::Kind::record, nullptr, &completion); }

  /// Work queued later waits for the record. Takes a reference.
  void wait_for(Completion& completion) { push(Task::Kind::wait, nullptr, &completion); }

  /// True if all work is complete.
  bool idle() const {
    const uint64_t target = submitted();
    return completed_.load(std::memory_order_acquire) >= target;
  }

  /// Number of the latest piece of work, for wait().
  uint64_t submitted() const { return submitted_.load(std::memory_order_acquire); }

  /// Waits until work number `target` is complete. False if the deadline passed.
  bool wait(uint64_t target, const Deadline& deadline);

  /// For Completion: runs a parked stream on, on this thread, which takes over the role.
  void resume() { drain(); }

 private:
  struct Task {
    enum class Kind : uint8_t { job, record, wait };
    Task* next;
    Kind kind;
    Completion* completion;
    Job job;
  };

  static constexpr uint32_t kKeptNodes = 1024;

  /// Takes the role and a number for one piece of work, if the stream is idle.
  bool claim() {
    std::lock_guard lock(lock_);
    if (active_ || head_) return false;
    active_ = true;
    submitted_.store(submitted_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    return true;
  }

  /// One more piece of work is complete. By the holder of the role.
  void finish_one() {
    // Sequentially consistent with wait(): either the waiter sees the new count, or we see the waiter.
    completed_.store(completed_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      notify();
  }

  /// Gives up the role, or goes on with what was queued meanwhile. The stream may be gone when this returns.
  void release() {
    lock_.lock();
    if (!head_) [[likely]] {
      active_ = false;
      lock_.unlock();
    } else {
      release_slow();
    }
  }

  void release_slow();
  uint64_t push(Task::Kind kind, const Job* job, Completion* completion);
  void execute(Job& job);
  void drain();
  void notify();
  void work();

  EngineDevice& device_;
  const bool worker_;

  // The queue, guarded by lock_.
  alignas(64) SpinLock lock_;
  bool active_ = false;    // somebody has the role
  bool sleeping_ = false;  // the worker waits at wake_
  bool stop_ = false;
  Task* head_ = nullptr;
  Task* tail_ = nullptr;
  Task* free_ = nullptr;  // recycled nodes, at most kKeptNodes
  uint32_t free_count_ = 0;
  std::atomic<uint64_t> submitted_{0};

  // For the worker that looks for work; alone, since it reads it all the time.
  alignas(64) std::atomic<bool> has_work_{false};

  // Of the holder of the role.
  alignas(64) std::atomic<uint64_t> completed_{0};
  Task* batch_ = nullptr;
  Task* finished_ = nullptr;  // nodes to recycle, latest first
  Task* finished_last_ = nullptr;
  uint32_t finished_count_ = 0;

  // Threads in wait().
  alignas(64) std::atomic<uint32_t> waiters_{0};
  std::mutex wait_mutex_;
  std::condition_variable progress_;

  sem_t wake_;
  std::thread thread_;
};

}  // namespace backplane::driver
