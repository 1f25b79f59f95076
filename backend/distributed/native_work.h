// distributed/native_work.h: what a collective of the native engine gives its caller: work on a stream, which nothing on the host waits
// for.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "distributed/native_engine.h"

namespace backplane::distributed {

// Of one call, or of several that were coalesced. Any thread, once it was returned.
class NativeWork : public c10d::Work {
 public:
  // `title`, `inputs`: what the profiler shows.
  NativeWork(int rank, c10d::OpType type, const char* title, uint64_t sequence, c10::Device device, const std::vector<at::Tensor>& inputs);

  // Current streams wait for it; the host does only for a barrier, if a timeout is given, or with <PREFIX>_DIST_BLOCKING_WAIT=1. Throws
  // c10::DistBackendError if the group has failed meanwhile, or after the timeout.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;  // complete from the start: its users' streams wait
  uint64_t getSequencenumber() const override;

  // For the group. `staged`: calls of the same batch that went through the host, NULL: none. With the engine's stream current.
  void add_result(const at::Tensor& tensor) { results_.push_back(tensor); }
  void queued(std::shared_ptr<NativeEngine> engine, std::shared_ptr<NativeCall> call, c10::intrusive_ptr<c10d::Work> staged);

 private:
  void throw_if_failed() const;

  const uint64_t sequence_;
  std::vector<at::Tensor> results_;
  std::shared_ptr<NativeEngine> engine_;
  std::shared_ptr<NativeCall> call_;  // NULL: nothing was queued
  c10::intrusive_ptr<c10d::Work> staged_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace backplane::distributed
