// distributed/native_work.cpp: see native_work.h.
#include "distributed/native_work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <utility>

#include "distributed/recording.h"
#include "runtime/options.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane::distributed {

NativeWork::NativeWork(int rank, c10d::OpType type, const char* title, uint64_t sequence, c10::Device device,
                       const std::vector<at::Tensor>& inputs)
    : Work(rank, type, title, inputs),
      sequence_(sequence),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device})) {}

void NativeWork::queued(std::shared_ptr<NativeEngine> engine, std::shared_ptr<NativeCall> call, c10::intrusive_ptr<c10d::Work> staged) {
  engine_ = std::move(engine);
  call_ = std::move(call);
  staged_ = std::move(staged);
  finish();  // for the profiler, and nobody else
  future_->markCompleted(c10::IValue(results_));
}

void NativeWork::throw_if_failed() const {
  if (call_ == nullptr || call_->ended_well) return;
  if (const std::exception_ptr error = engine_->failure()) std::rethrow_exception(error);
}

bool NativeWork::wait(std::chrono::milliseconds timeout) {
  const Recording recording(rank_, sequence_);
  static const bool blocks = env("DIST_BLOCKING_WAIT").value_or("0") != "0";
  if (staged_ != nullptr) staged_->wait(timeout);
  if (call_ == nullptr) return true;
  throw_if_failed();
  call_->done->block(current_stream(engine_->device().index()));
  if (!blocks && timeout == kNoTimeout && opType_ != c10d::OpType::BARRIER) return true;

  const auto begin = std::chrono::steady_clock::now();
  const int32_t status = interruptible_wait([&](uint64_t slice_ns) -> int32_t {
    throw_if_failed();
    if (timeout != kNoTimeout && std::chrono::steady_clock::now() - begin >= timeout) return BP_PENDING;
    return call_->done->wait(std::min<uint64_t>(slice_ns, 20'000'000)) ? BP_OK : BP_TIMEOUT;
  });
  throw_if_failed();
  TORCH_CHECK_WITH(
      DistBackendError, status == BP_OK, call_->name, " is not over after ",
      status == BP_PENDING ? c10::str(timeout.count(), " ms, for as long as wait() was asked to wait") : "what the watchdog allows");
  return true;
}

void NativeWork::synchronize() { wait(); }

bool NativeWork::isCompleted() {
  if (staged_ != nullptr && !staged_->isCompleted()) return false;
  return call_ == nullptr || call_->ended_well || exception() != nullptr || call_->done->query();
}

bool NativeWork::isSuccess() const { return exception() == nullptr; }

std::exception_ptr NativeWork::exception() const {
  if (staged_ != nullptr && staged_->exception() != nullptr) return staged_->exception();
  return call_ == nullptr || call_->ended_well ? nullptr : engine_->failure();
}

std::vector<at::Tensor> NativeWork::result() { return results_; }
c10::intrusive_ptr<c10::ivalue::Future> NativeWork::getFuture() { return future_; }
uint64_t NativeWork::getSequencenumber() const { return sequence_; }

}  // namespace backplane::distributed
