// distributed/group_work.h: what a collective gives its caller.
//
// Note [Network and copies]: a work has parts. One that the driver carries out is on a stream from the start, and nothing on the host waits
// for it. One that goes through the host is over there when the network's part is, and copies on the device follow it. So wait() blocks the
// calling thread for the network's part, if there is one, then lets the thread's current streams wait for the device's.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "distributed/communicator.h"
#include "runtime/event.h"

namespace backplane::distributed {

// Of one collective, or of several that were coalesced or cut into parts, which are over together. Any thread.
class GroupWork : public c10d::Work {
 public:
  // `title`, `inputs`: what the profiler shows. On the host it is over when finish_part was called as often as add_part and once more, or
  // after fail().
  GroupWork(int rank, c10d::OpType type, const char* title, uint64_t sequence, c10::Device device, const std::vector<at::Tensor>& inputs);

  // Throws c10::DistBackendError if a call or its group failed, or if it takes longer than `timeout` (kNoTimeout: as long as the group's).
  // For the driver's part the host waits for a barrier, if a timeout is given, and with <PREFIX>_DIST_BLOCKING_WAIT=1. A Ctrl-C ends it.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  bool isCompleted() override;  // on the device
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  // Complete when the work is over on the host; its users' streams wait.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

  // What follows is the transports' and the group's.
  void add_result(const at::Tensor& tensor);
  void add_part();
  // `copied`: recorded behind the copies, on `stream`.
  void finish_part(PooledEvent copied, const c10::Stream& stream);
  void finish_part();
  void fail(const std::exception_ptr& error);  // the first one counts
  void set_source(int rank) { source_ = rank; }
  // The part that the driver carries out.
  void queued(std::shared_ptr<Communicator> communicator, std::shared_ptr<NativeCall> call);

 private:
  using Clock = std::chrono::steady_clock;
  void end(const std::exception_ptr& error);
  // Until `begin` and the timeout; throws as wait().
  void wait_for_network(Clock::time_point begin, std::chrono::milliseconds timeout);
  void wait_for_call(Clock::time_point begin, std::chrono::milliseconds timeout) const;
  void throw_if_call_failed() const;

  std::mutex parts_mutex_;  // over what follows, of which all but the first is complete, and only read, once the work is over
  std::vector<at::Tensor> results_;
  std::vector<PooledEvent> copied_;
  std::optional<c10::Stream> stream_;  // behind the driver's part, or else the last one of the host
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<NativeCall> call_;  // NULL: the driver has no part in it
  size_t parts_ = 1;

  std::atomic<bool> is_over_{false};
  std::atomic<int> source_{-1};
  const uint64_t sequence_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace backplane::distributed
