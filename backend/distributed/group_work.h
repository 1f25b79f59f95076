// distributed/group_work.h: the Work object that a collective returns.
//
// Note [Network and copies]: a work has parts. A part of the driver is on a stream from the start, and nothing on the host waits for it. A
// staged part is complete on the host when the network's part is, and is followed by copies on the device. So wait() blocks the calling
// thread for the network's part, if there is one, and makes the thread's current streams wait for the device's part.
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

// For one collective, or for several that were coalesced or cut into parts, which complete together. Any thread.
class GroupWork : public c10d::Work {
 public:
  // `title`, `inputs`: for the profiler. It is complete on the host when finish_part was called once more than add_part, or after fail().
  GroupWork(int rank, c10d::OpType type, const char* title, uint64_t sequence, c10::Device device, const std::vector<at::Tensor>& inputs);

  // Throws c10::DistBackendError if a call or its group failed, or if `timeout` is exceeded (kNoTimeout: the group's). The host waits for
  // the driver's part only in a barrier, with a timeout, or with <PREFIX>_DIST_BLOCKING_WAIT=1. Ctrl-C interrupts it.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  bool isCompleted() override;  // on the device
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  // Completes when the work is complete on the host; the streams of its users wait for the rest.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

  // For the transports and the group.
  void add_result(const at::Tensor& tensor);
  void add_part();
  // `copied`: recorded after the copies, on `stream`.
  void finish_part(PooledEvent copied, const c10::Stream& stream);
  void finish_part();
  void fail(const std::exception_ptr& error);  // only the first error counts
  void set_source(int rank) { source_ = rank; }
  // Sets the driver's part.
  void queued(std::shared_ptr<Communicator> communicator, std::shared_ptr<NativeCall> call);

 private:
  using Clock = std::chrono::steady_clock;
  void end(const std::exception_ptr& error);
  // Until `begin` plus the timeout; throws as wait().
  void wait_for_network(Clock::time_point begin, std::chrono::milliseconds timeout);
  void wait_for_call(Clock::time_point begin, std::chrono::milliseconds timeout) const;
  void throw_if_call_failed() const;

  std::mutex parts_mutex_;  // protects what follows; all but the first is read-only once the work is complete
  std::vector<at::Tensor> results_;
  std::vector<PooledEvent> copied_;
  std::optional<c10::Stream> stream_;  // follows the driver's part, or the last staged part
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<NativeCall> call_;  // NULL: there is no part of the driver
  size_t parts_ = 1;

  std::atomic<bool> is_over_{false};
  std::atomic<int> source_{-1};
  const uint64_t sequence_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace backplane::distributed
