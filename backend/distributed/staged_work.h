// distributed/staged_work.h: what a collective of the staged engine gives its caller.
//
// Note [Network and copies]: the host carries a collective out over the network, and copies on the device follow it. wait() blocks the
// calling thread for the network's part, then lets the thread's current streams wait for the copies.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "runtime/event.h"

namespace backplane::distributed {

// Of one call, or of several that were coalesced or cut into parts, which are over together. Any thread.
class StagedWork : public c10d::Work {
 public:
  // `title`, `inputs`: what the profiler shows. It is over when finish_part was called as often as add_part and once more, or after fail().
  StagedWork(int rank, c10d::OpType type, const char* title, uint64_t sequence, c10::Device device, const std::vector<at::Tensor>& inputs);

  // Throws c10::DistBackendError if the call failed, or if it takes longer than `timeout` (kNoTimeout: as long as the group's). A Ctrl-C
  // ends the wait.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  bool isCompleted() override;  // with its copies
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

  // What follows is the engine's.
  void add_part();
  void add_result(const at::Tensor& tensor);
  // `copied`: recorded behind the copies, NULL if there are none. With the stream of the copies current, which the future's callbacks find.
  void finish_part(PooledEvent copied);
  void fail(const std::exception_ptr& error);  // the first one counts
  void set_source(int rank) { source_ = rank; }

 private:
  void end(const std::exception_ptr& error);

  std::mutex parts_mutex_;  // over these three
  std::vector<at::Tensor> results_;
  std::vector<PooledEvent> copied_;  // complete, and only read, once the work is over
  size_t parts_ = 1;

  std::atomic<bool> is_over_{false};
  std::atomic<int> source_{-1};
  const uint64_t sequence_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace backplane::distributed
