// drivers/shims/fault/communicators.h: what has happened to each communicator: it has failed, or its work hangs until somebody aborts it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <backplane/driver/collective.h>
#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/wait.hpp>

namespace backplane::driver::fault {

class CommunicatorFault {
 public:
  explicit CommunicatorFault(int32_t device) : device_(device) {}

  int32_t device() const { return device_; }

  /// Its queued work hangs from now on, until release().
  void hang() {
    std::lock_guard lock(mutex_);
    hangs_ = true;
  }
  void release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  /// On the stream, in the place of the work. It blocks, as no callback of the core's may.
  void stand_still() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return released_; });
  }
  /// False if work of it hangs and the time is over.
  bool wait(uint64_t timeout_ns) {
    const Deadline deadline(timeout_ns);
    std::unique_lock lock(mutex_);
    return deadline.wait(changed_, lock, [&] { return !hangs_ || released_; });
  }

  void fail(const std::string& text) {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = text;
  }
  /// Why it has failed by this shim; "" if it has not.
  std::string failure() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  const int32_t device_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ = false, released_ = false;
  std::string failure_;
};

/// Those that live, by the handle of the driver below.
class Communicators {
 public:
  using Known = std::shared_ptr<CommunicatorFault>;

  ~Communicators() { release_all(); }

  void add(bp_comm* comm, int32_t device) {
    std::lock_guard lock(mutex_);
    known_.insert_or_assign(comm, std::make_shared<CommunicatorFault>(device));
  }
  void remove(bp_comm* comm) {
    std::lock_guard lock(mutex_);
    known_.erase(comm);
  }
  /// Throws INVALID_ARGUMENT.
  Known find(bp_comm* comm) const {
    std::lock_guard lock(mutex_);
    const auto found = known_.find(comm);
    if (found == known_.end()) throw Error(BP_INVALID_ARGUMENT, "bp.collective: no live communicator of this driver");
    return found->second;
  }
  void release_all() {
    std::lock_guard lock(mutex_);
    for (auto& [comm, fault] : known_) fault->release();
  }

 private:
  mutable std::mutex mutex_;
  std::map<bp_comm*, Known> known_;
};

}  // namespace backplane::driver::fault
