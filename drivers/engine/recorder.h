// drivers/engine/recorder.h: bp.profile for devices whose work is host functions: a record for each piece of work, timed where it runs.
//
// Off, it costs a piece of work one load. On, one allocation and two short locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <backplane/driver/profile.h>
#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/event_profile.hpp>

namespace backplane::driver {

class Recorder;

/// A record of work that has been queued and has not ended. Whoever runs the work calls begin() and end(), which gives the object back.
class WorkRecord {
 public:
  void begin() noexcept;
  /// ran: it is complete. Else the record says that it has not ended.
  void end(bool ran) noexcept;

 private:
  friend class Recorder;
  explicit WorkRecord(Recorder& owner) : owner_(owner) {}

  Recorder& owner_;
  uint64_t recording_ = 0;
  size_t place_ = 0;  // in the recorder's list
  bp_activity activity_{};
  std::atomic<int64_t> begin_ns_{0};
  std::string name_;
};

/// Around the work of a record, which may be NULL. One whose `ran` was not set did not complete.
struct TimedWork {
  explicit TimedWork(WorkRecord* of) : record(of) {
    if (record) [[unlikely]]
      record->begin();
  }
  ~TimedWork() {
    if (record) [[unlikely]]
      record->end(ran);
  }
  TimedWork(const TimedWork&) = delete;
  TimedWork& operator=(const TimedWork&) = delete;

  WorkRecord* const record;
  bool ran = false;
};

/// What a piece of work is, for its record.
struct Work {
  int32_t kind = -1;  // BP_ACTIVITY_*; -1: nothing that is recorded
  uint64_t bytes = 0;
  int32_t dst_device = 0, src_device = 0;  // of copies
  const char* name = nullptr;              // lives as long as the work can run
};

class Recorder {
 public:
  struct Drop {
    void operator()(WorkRecord* work) const noexcept { work->owner_.drop(*work); }
  };
  /// A record whose work is not queued yet; it drops the record. release() hands it to the work.
  using Owned = std::unique_ptr<WorkRecord, Drop>;

  /// What the calling thread queues: nullptr while nobody wants it. stream: the handle, NULL for the default one. name: NULL for none.
  Owned queue(int32_t kind, int32_t device, const void* stream, uint64_t bytes = 0, const char* name = nullptr) {
    return queue(kind, device, stream, bytes, device, device, name);
  }
  Owned queue_copy(int32_t device, const void* stream, int32_t dst_device, int32_t src_device, uint64_t bytes) {
    return queue(BP_ACTIVITY_COPY, device, stream, bytes, dst_device, src_device, nullptr);
  }

  Owned queue(const Work& work, int32_t device, const void* stream) {
    if (work.kind < 0) return nullptr;
    return work.kind == BP_ACTIVITY_COPY ? queue_copy(device, stream, work.dst_device, work.src_device, work.bytes)
                                         : queue(work.kind, device, stream, work.bytes, work.name);
  }
  /// Whether anything is recorded at the moment.
  bool is_on() const noexcept { return kinds_.load(std::memory_order_relaxed) != 0; }

  // The entries. They throw Error.
  void start(uint64_t kinds, bp_activity_callback fn, void* arg);
  void stop(uint64_t* dropped);
  void tag(uint64_t correlation) noexcept;

  /// What launch_begin keeps for launch_end, which takes it; NULL while recording is off.
  WorkRecord* open_launch(int32_t device, const void* stream);
  WorkRecord* close_launch(const char* name);

 private:
  friend class WorkRecord;

  /// The state of a thread in one recording.
  struct PerThread {
    uint64_t recording = 0;
    uint64_t correlation = 0;
    WorkRecord* launch = nullptr;
  };
  static PerThread& of_thread() noexcept;

  Owned queue(int32_t kind, int32_t device, const void* stream, uint64_t bytes, int32_t dst_device, int32_t src_device, const char* name) {
    if (!(kinds_.load(std::memory_order_relaxed) >> kind & 1)) [[likely]]
      return nullptr;
    return make(kind, device, stream, bytes, dst_device, src_device, name);
  }
  Owned make(int32_t kind, int32_t device, const void* stream, uint64_t bytes, int32_t dst_device, int32_t src_device, const char* name);
  void finish(WorkRecord& work, int64_t end_ns) noexcept;
  void drop(WorkRecord& work) noexcept;
  // With the lock held.
  void forget(WorkRecord& work) noexcept;
  void hand_over();

  std::atomic<uint64_t> kinds_{0};      // 0: off
  std::atomic<uint64_t> recording_{0};  // of all recorders of the process
  std::mutex mutex_;
  bp_activity_callback fn_ = nullptr;
  void* arg_ = nullptr;
  uint64_t dropped_ = 0;
  std::vector<WorkRecord*> open_;  // of this recording
  std::vector<std::unique_ptr<WorkRecord>> done_;
};

}  // namespace backplane::driver
