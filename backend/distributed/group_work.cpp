// distributed/group_work.cpp: waits for a collective, and its completion.
#include "distributed/group_work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <backplane/driver.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "distributed/interpreter.h"
#include "distributed/recording.h"
#include "runtime/options.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane::distributed {
namespace group_work_impl {
namespace {

// `status`: returned by interruptible_wait; BP_PENDING: the caller's timeout was reached.
void check_waited_for(int32_t status, const char* name, std::chrono::milliseconds timeout) {
  TORCH_CHECK_WITH(DistBackendError, status == BP_OK, name, " did not complete within ",
                   status == BP_PENDING ? c10::str(timeout.count(), " ms, the timeout of wait()") : "the watchdog's limit");
}

}  // namespace
}  // namespace group_work_impl

GroupWork::GroupWork(int rank, c10d::OpType type, const char* title, uint64_t sequence, c10::Device device,
                     const std::vector<at::Tensor>& inputs)
    : Work(rank, type, title, inputs),
      sequence_(sequence),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device})) {}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
  const Recording recording(rank_, sequence_);
  static const bool blocks = env("DIST_BLOCKING_WAIT").value_or("0") != "0";
  const auto begin = Clock::now();
  wait_for_network(begin, timeout);
  for (const PooledEvent& copied : copied_) copied->block(current_stream(copied->device()));
  if (call_ == nullptr) return true;
  throw_if_call_failed();
  call_->done->block(current_stream(communicator_->device().index()));
  if (blocks || timeout != kNoTimeout || opType_ == c10d::OpType::BARRIER) wait_for_call(begin, timeout);
  return true;
}

void GroupWork::wait_for_network(Clock::time_point begin, std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!completed_) {
    lock.unlock();
    const int32_t status = interruptible_wait([&](uint64_t slice_ns) -> int32_t {
      auto slice = std::chrono::nanoseconds(std::min<uint64_t>(slice_ns, 1'000'000'000));
      if (timeout != kNoTimeout) slice = std::min<std::chrono::nanoseconds>(slice, begin + timeout - Clock::now());
      std::unique_lock<std::mutex> held(mutex_);
      if (cv_.wait_for(held, slice, [&] { return completed_; })) return BP_OK;
      return timeout != kNoTimeout && Clock::now() - begin >= timeout ? BP_PENDING : BP_TIMEOUT;
    });
    group_work_impl::check_waited_for(status, "the collective", timeout);
    lock.lock();
  }
  if (exception_) std::rethrow_exception(exception_);
}

void GroupWork::wait_for_call(Clock::time_point begin, std::chrono::milliseconds timeout) const {
  const int32_t status = interruptible_wait([&](uint64_t slice_ns) -> int32_t {
    throw_if_call_failed();
    if (timeout != kNoTimeout && Clock::now() - begin >= timeout) return BP_PENDING;
    return call_->done->wait(std::min<uint64_t>(slice_ns, 20'000'000)) ? BP_OK : BP_TIMEOUT;
  });
  throw_if_call_failed();
  group_work_impl::check_waited_for(status, call_->name, timeout);
}

void GroupWork::throw_if_call_failed() const {
  if (call_->ended_well) return;
  if (const std::exception_ptr error = communicator_->failure()) std::rethrow_exception(error);
}

void GroupWork::synchronize() { wait(); }

bool GroupWork::isCompleted() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!completed_) return false;
  }
  if (exception() != nullptr) return true;
  const auto is_done = [](const PooledEvent& event) { return event->query(); };
  return std::all_of(copied_.begin(), copied_.end(), is_done) && (call_ == nullptr || call_->ended_well || is_done(call_->done));
}

bool GroupWork::isSuccess() const { return exception() == nullptr; }

std::exception_ptr GroupWork::exception() const {
  if (const std::exception_ptr error = Work::exception()) return error;
  return !is_over_ || call_ == nullptr || call_->ended_well ? nullptr : communicator_->failure();
}

int GroupWork::sourceRank() const {
  TORCH_CHECK(source_ >= 0, "only a completed receive has a source");
  return source_;
}

std::vector<at::Tensor> GroupWork::result() {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  return results_;
}

c10::intrusive_ptr<c10::ivalue::Future> GroupWork::getFuture() { return future_; }

uint64_t GroupWork::getSequencenumber() const { return sequence_; }

void GroupWork::add_part() {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  ++parts_;
}

void GroupWork::add_result(const at::Tensor& tensor) {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  results_.push_back(tensor);
}

void GroupWork::finish_part(PooledEvent copied, const c10::Stream& stream) {
  {
    const std::lock_guard<std::mutex> lock(parts_mutex_);
    if (!is_over_) {
      copied_.push_back(std::move(copied));
      if (call_ == nullptr) stream_ = stream;
    }
  }
  finish_part();
}

void GroupWork::finish_part() {
  {
    const std::lock_guard<std::mutex> lock(parts_mutex_);
    if (--parts_ > 0) return;
  }
  end(nullptr);
}

void GroupWork::queued(std::shared_ptr<Communicator> communicator, std::shared_ptr<NativeCall> call) {
  const std::lock_guard<std::mutex> lock(parts_mutex_);
  if (is_over_) return;  // a part on the host has failed
  stream_ = communicator->stream();
  communicator_ = std::move(communicator);
  call_ = std::move(call);
}

void GroupWork::fail(const std::exception_ptr& error) { end(error); }

void GroupWork::end(const std::exception_ptr& error) {
  if (is_over_.exchange(true)) return;
  finish(error);
  const InterpreterUse python;  // callbacks may enter Python
  if (!python.is_allowed()) return;
  if (error) return future_->setErrorIfNeeded(error);
  const c10::OptionalStreamGuard guard(stream_);  // callbacks run on a stream that follows all parts
  for (const PooledEvent& copied : copied_) copied->block(*stream_);
  future_->markCompleted(c10::IValue(result()));
}

}  // namespace backplane::distributed
