// drivers/engine/recorder.cpp: records on their way, and how they are handed over.
#include "recorder.h"

#include <algorithm>
#include <new>
#include <utility>

namespace backplane::driver {
namespace recorder_impl {

constexpr size_t kBatch = 512;  // records that are handed over at once
std::atomic<uint64_t> recordings{0};

}  // namespace recorder_impl

using namespace recorder_impl;

void WorkRecord::begin() noexcept { begin_ns_.store(record_clock_ns(), std::memory_order_relaxed); }

void WorkRecord::end(bool ran) noexcept {
  // A clock that was set back must not turn the record around.
  owner_.finish(*this, ran ? std::max(record_clock_ns(), begin_ns_.load(std::memory_order_relaxed)) : 0);
}

Recorder::PerThread& Recorder::of_thread() noexcept {
  thread_local PerThread thread;
  return thread;
}

void Recorder::start(uint64_t kinds, bp_activity_callback fn, void* arg) {
  std::lock_guard lock(mutex_);
  check_profile_start(kinds, fn, fn_ != nullptr);
  fn_ = fn;
  arg_ = arg;
  dropped_ = 0;
  recording_.store(++recordings);
  kinds_.store(kinds);
}

void Recorder::stop(uint64_t* dropped) {
  std::lock_guard lock(mutex_);
  check_profile_stop(dropped, fn_ != nullptr);
  kinds_.store(0);
  recording_.store(0);
  hand_over();
  // What has not ended is recorded without an end; its end will find that it is no longer wanted.
  for (WorkRecord* work : open_) {
    bp_activity activity = work->activity_;
    activity.begin_ns = work->begin_ns_.load(std::memory_order_relaxed);
    activity.name = work->name_.empty() ? nullptr : work->name_.c_str();
    const bp_activity* const one = &activity;
    fn_(arg_, &one, 1);
    work->recording_ = 0;
  }
  open_.clear();
  fn_ = nullptr;
  *dropped = dropped_;
}

void Recorder::tag(uint64_t correlation) noexcept {
  PerThread& mine = of_thread();
  mine.recording = recording_.load(std::memory_order_relaxed);
  mine.correlation = correlation;
}

Recorder::Owned Recorder::make(int32_t kind, int32_t device, const void* stream, uint64_t bytes, int32_t dst_device, int32_t src_device,
                               const char* name) {
  std::unique_ptr<WorkRecord> work(new WorkRecord(*this));
  const PerThread& mine = of_thread();
  bp_activity& activity = work->activity_;
  activity.struct_size = sizeof activity;
  activity.kind = kind;
  activity.device = device;
  activity.stream = reinterpret_cast<uint64_t>(stream);
  activity.queued_ns = record_clock_ns();
  activity.bytes = bytes;
  activity.src_device = src_device;
  activity.dst_device = dst_device;
  activity.thread = record_thread();
  if (name) work->name_ = name;
  std::lock_guard lock(mutex_);
  if (!fn_) return nullptr;
  work->recording_ = recording_.load(std::memory_order_relaxed);
  if (mine.recording == work->recording_) activity.correlation = mine.correlation;
  work->place_ = open_.size();
  open_.push_back(work.get());
  return Owned(work.release());
}

void Recorder::forget(WorkRecord& work) noexcept {
  open_.back()->place_ = work.place_;
  open_[work.place_] = open_.back();
  open_.pop_back();
}

void Recorder::finish(WorkRecord& work, int64_t end_ns) noexcept {
  std::unique_ptr<WorkRecord> mine(&work);
  std::lock_guard lock(mutex_);
  if (work.recording_ == 0) return;  // recording has ended
  forget(work);
  work.activity_.begin_ns = work.begin_ns_.load(std::memory_order_relaxed);
  work.activity_.end_ns = end_ns;
  try {
    done_.push_back(std::move(mine));
    if (done_.size() >= kBatch) hand_over();
  } catch (const std::bad_alloc&) {
    ++dropped_;
  }
}

void Recorder::drop(WorkRecord& work) noexcept {
  const std::unique_ptr<WorkRecord> mine(&work);
  std::lock_guard lock(mutex_);
  if (work.recording_ != 0) forget(work);
}

void Recorder::hand_over() {
  std::vector<const bp_activity*> records;
  records.reserve(done_.size());
  for (const auto& work : done_) {
    if (!work->name_.empty()) work->activity_.name = work->name_.c_str();
    records.push_back(&work->activity_);
  }
  if (!records.empty()) fn_(arg_, records.data(), records.size());
  done_.clear();
}

WorkRecord* Recorder::open_launch(int32_t device, const void* stream) {
  PerThread& mine = of_thread();
  const uint64_t now = recording_.load(std::memory_order_relaxed);
  if (mine.recording != now) mine = {now, 0, nullptr};
  mine.launch = queue(BP_ACTIVITY_KERNEL, device, stream).release();
  return mine.launch;
}

WorkRecord* Recorder::close_launch(const char* name) {
  PerThread& mine = of_thread();
  WorkRecord* const work = std::exchange(mine.launch, nullptr);
  if (!work) return nullptr;
  std::lock_guard lock(mutex_);
  if (!name) {  // its begin may still come, so the record stays, and is not delivered
    if (work->recording_ != 0) forget(*work);
    work->recording_ = 0;
  } else if (work->recording_ != 0) {
    work->name_ = name;
  }
  return work;
}

}  // namespace backplane::driver
