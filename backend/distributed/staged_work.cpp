// distributed/staged_work.cpp: waiting for a collective of the staged engine, and its end.
#include "distributed/staged_work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <backplane/driver.h>

#include <algorithm>
#include <utility>

#include "distributed/interpreter.h"
#include "distributed/recording.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane::distributed {

StagedWork::StagedWork(int rank, c10d::OpType type, const char* title, uint64_t sequence, c10::Device device,
                       const std::vector<at::Tensor>& inputs)
    : Work(rank, type, title, inputs),
      sequence_(sequence),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device})) {}

bool StagedWork::wait(std::chrono::milliseconds timeout) {
  const Recording recording(rank_, sequence_);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto limit = timeout == kNoTimeout ? std::chrono::nanoseconds::max() : std::chrono::nanoseconds(timeout);
  // BP_PENDING: longer than the caller wants to wait.
  const int32_t status = interruptible_wait([&](uint64_t slice_ns) -> int32_t {
    const auto slice = std::chrono::nanoseconds(std::min<uint64_t>(slice_ns, std::chrono::nanoseconds::max().count()));
    const auto slice_begin = Clock::now();
    std::unique_lock<std::mutex> lock(mutex_);
    while (!completed_) {
      const auto now = Clock::now();
      if (now - begin >= limit) return BP_PENDING;
      if (now - slice_begin >= slice) return BP_TIMEOUT;
      cv_.wait_for(lock, std::min({limit - (now - begin), slice - (now - slice_begin), std::chrono::nanoseconds(std::chrono::hours(1))}));
    }
    return BP_OK;
  });
  TORCH_CHECK_WITH(DistBackendError, status != BP_PENDING, "the collective is not over after ", timeout.count(),
                   " ms, for as long as wait() was asked to wait");
  TORCH_CHECK_WITH(DistBackendError, status == BP_OK, "the collective is not over after what the watchdog allows");
  if (exception_) std::rethrow_exception(exception_);
  for (const PooledEvent& copied : copied_) copied->block(current_stream(copied->device()));
  return true;
}

void StagedWork::synchronize() { wait(); }

bool StagedWork::isCompleted() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!completed_) return false;
    if (exception_) return true;
  }
  return std::all_of(copied_.begin(), copied_.end(), [](const PooledEvent& copied) { return copied->query(); });
}

int StagedWork::sourceRank() const {
  TORCH_CHECK(source_ >= 0, "only a receive that is over has a source");
  return source_;
}

std::vector<at::Tensor> StagedWork::result() {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  return results_;
}

c10::intrusive_ptr<c10::ivalue::Future> StagedWork::getFuture() { return future_; }

uint64_t StagedWork::getSequencenumber() const { return sequence_; }

void StagedWork::add_part() {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  ++parts_;
}

void StagedWork::add_result(const at::Tensor& tensor) {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  results_.push_back(tensor);
}

void StagedWork::finish_part(PooledEvent copied) {
  {
    const std::lock_guard<std::mutex> lock(parts_mutex_);
    if (copied != nullptr && !is_over_) copied_.push_back(std::move(copied));
    if (--parts_ > 0) return;
  }
  end(nullptr);
}

void StagedWork::fail(const std::exception_ptr& error) { end(error); }

void StagedWork::end(const std::exception_ptr& error) {
  if (is_over_.exchange(true)) return;
  finish(error);
  const InterpreterUse python;  // for callbacks
  if (!python.is_allowed()) return;
  if (error) {
    future_->setErrorIfNeeded(error);
  } else {
    future_->markCompleted(c10::IValue(result()));
  }
}

}  // namespace backplane::distributed
