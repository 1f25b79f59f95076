// drivers/engine/stream.cpp: the queue of a stream, its worker thread, and the waits for it.
#include "stream.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "engine.h"

namespace backplane::driver {
namespace {

/// Signals belong to the host's threads: a worker takes only those that its own instructions raise.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t set;
    sigfillset(&set);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&set, own);
    pthread_sigmask(SIG_SETMASK, &set, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// How long an idle worker looks for work: long where work came again soon the last time.
constexpr std::chrono::nanoseconds kLongSpin = std::chrono::microseconds(50);
constexpr std::chrono::nanoseconds kShortSpin = std::chrono::microseconds(5);
constexpr std::chrono::nanoseconds kSoon = std::chrono::microseconds(200);

}  // namespace

Stream::Stream(EngineDevice& device, bool worker, int32_t priority, const std::string& name) : device_(device), worker_(worker) {
  sem_init(&wake_, 0, 0);
  if (!worker) return;
  BlockSignals blocked;  // a new thread inherits the mask
  thread_ = std::thread([this, priority] {
    // Best effort: only a privileged process may raise a thread above the others.
    if (priority != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 5 * priority);
    work();
  });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

Stream::~Stream() {
  wait(submitted(), Deadline(BP_NO_TIMEOUT));
  bool wake = false;
  for (;;) {
    // The thread that completed the last work may still hold the role for a moment.
    std::unique_lock lock(lock_);
    if (active_ || head_) {
      lock.unlock();
      std::this_thread::yield();
      continue;
    }
    stop_ = true;
    std::swap(wake, sleeping_);
    break;
  }
  if (wake) sem_post(&wake_);
  if (thread_.joinable()) thread_.join();
  while (free_) delete std::exchange(free_, free_->next);
  sem_destroy(&wake_);
}

uint64_t Stream::push(Task::Kind kind, const Job* job, Completion* completion) {
  bool wake = false, run = false;
  std::unique_lock lock(lock_);
  Task* task = free_;
  if (task) [[likely]] {
    free_ = task->next;
    --free_count_;
  } else {
    lock.unlock();
    task = new Task;
    lock.lock();
  }
  task->next = nullptr;
  task->kind = kind;
  task->completion = completion ? completion->ref() : nullptr;
  if (job) task->job = *job;
  (head_ ? tail_->next : head_) = task;
  tail_ = task;
  const uint64_t number = submitted_.load(std::memory_order_relaxed) + 1;
  submitted_.store(number, std::memory_order_release);
  if (!worker_) {
    run = !std::exchange(active_, true);
  } else {
    has_work_.store(true, std::memory_order_release);
    std::swap(wake, sleeping_);
  }
  lock.unlock();
  if (wake) sem_post(&wake_);
  if (run) drain();
  return number;
}

void Stream::release_slow() {
  // Entered with lock_ held and work queued.
  if (!worker_) {
    lock_.unlock();
    drain();
    return;
  }
  active_ = false;
  const bool wake = std::exchange(sleeping_, false);
  // The worker cannot end before it has run what is queued, so the stream lives until the post.
  lock_.unlock();
  if (wake) sem_post(&wake_);
}

void Stream::execute(Job& job) {
  TimedWork timed(job.record);
  try {
    const int32_t status = device_.sticky();
    job.run(job, status);
    timed.ran = status == BP_OK;
  } catch (const Error& error) {
    device_.fault(error.status(), error.what());
  } catch (const std::exception& error) {
    device_.fault(BP_FAULT, error.what());
  } catch (...) {
    device_.fault(BP_FAULT, "device work threw something that is no std::exception");
  }
}

void Stream::drain() {
  for (;;) {
    while (batch_) {
      Task& task = *batch_;
      std::vector<Stream*> parked;
      switch (task.kind) {
        case Task::Kind::job:
          execute(task.job);
          break;
        case Task::Kind::record:
          parked = task.completion->complete(now_ns());
          break;
        case Task::Kind::wait:
          if (worker_) {
            task.completion->wait(Deadline(BP_NO_TIMEOUT), true);
          } else if (!task.completion->done() && task.completion->park(*this)) {
            return;  // with the role: resume() comes back to this task, perhaps already on another thread
          }
          break;
      }
      if (task.completion) task.completion->unref();
      batch_ = task.next;
      task.next = finished_;
      if (!finished_) finished_last_ = &task;
      finished_ = &task;
      ++finished_count_;
      finish_one();
      for (Stream* stream : parked) stream->resume();
    }
    Task* surplus = nullptr;
    bool more = false;
    {
      std::lock_guard lock(lock_);
      Task* done = std::exchange(finished_, nullptr);
      const uint32_t count = std::exchange(finished_count_, 0);
      if (free_count_ + count > kKeptNodes) {
        surplus = done;
      } else if (done) {
        finished_last_->next = std::exchange(free_, done);
        free_count_ += count;
      }
      batch_ = head_;
      head_ = tail_ = nullptr;
      has_work_.store(false, std::memory_order_relaxed);
      more = batch_ != nullptr;
      if (!more) active_ = false;
    }
    while (surplus) delete std::exchange(surplus, surplus->next);
    if (!more) return;
  }
}

void Stream::notify() {
  {
    std::lock_guard lock(wait_mutex_);
  }
  progress_.notify_all();
}

bool Stream::wait(uint64_t target, const Deadline& deadline) {
  const auto reached = [&] { return completed_.load(std::memory_order_seq_cst) >= target; };
  if (reached()) return true;
  if (deadline.asks_only()) return false;
  if (spin_for(std::chrono::microseconds(20), reached)) return true;
  std::unique_lock lock(wait_mutex_);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  const bool done = deadline.wait(progress_, lock, reached);
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  return done;
}

void Stream::work() {
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds spin = kLongSpin;
  Clock::time_point idle_since = Clock::now();
  for (;;) {
    bool run = false, sleep = false;
    {
      std::lock_guard lock(lock_);
      if (head_ && !active_) {
        run = active_ = true;
      } else if (!head_ && stop_) {
        return;
      }
    }
    if (run) {
      spin = Clock::now() - idle_since < kSoon ? kLongSpin : kShortSpin;
      drain();
      idle_since = Clock::now();
      continue;
    }
    // Work that comes while we look pays no wake-up.
    idle_spin_for(spin, [&] { return has_work_.load(std::memory_order_acquire); });
    {
      std::lock_guard lock(lock_);
      // With work there, but another thread in the role (blocking work), that thread's release() wakes us.
      if ((!head_ || active_) && !stop_) sleep = sleeping_ = true;
    }
    while (sleep && sem_wait(&wake_) != 0) {
    }
  }
}

}  // namespace backplane::driver
