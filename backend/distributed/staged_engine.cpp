// distributed/staged_engine.cpp: the way of a call through the host. Note [Staged calls] is in staged_engine.h.
#include "distributed/staged_engine.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "distributed/deadline.h"
#include "memory/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

namespace backplane::distributed {
namespace staged_engine_impl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostWaiters = 64;          // threads; more calls in flight wait for one
constexpr milliseconds kSlice{20};           // how late an abort may be noticed
constexpr milliseconds kGloosOwnError{500};  // Gloo's error tells more than ours; it gets this much longer

}  // namespace
}  // namespace staged_engine_impl

using namespace staged_engine_impl;

StagedEngine::StagedEngine(std::string group, c10::intrusive_ptr<c10d::Backend> gloo)
    : group_(std::move(group)),
      gloo_(std::move(gloo)),
      collectives_("ccl_start", 1),
      messages_("ccl_message", 1),
      waiters_("ccl_wait", kMostWaiters) {}

StagedEngine::Streams StagedEngine::streams(c10::Device device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) return found->second;
  const int priority = device_properties(device.index()).priority_greatest;
  const Streams made{pool_stream(device.index(), priority), pool_stream(device.index(), priority)};
  return streams_.emplace(device.index(), made).first->second;
}

std::exception_ptr StagedEngine::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void StagedEngine::submit(std::shared_ptr<StagedCall> call) {
  TORCH_CHECK(!in_bad_fork(), group_, " was made by the parent of this process; a forked child needs a process group of its own");
  if (const std::exception_ptr error = failure()) std::rethrow_exception(error);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  queue_copies_in(*call);
  call->deadline = Clock::now() + call->timeout;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.insert(call);
  }
  (call->is_message ? messages_ : collectives_).add([self = shared_from_this(), call] { self->start(call); });
  if (const std::exception_ptr error = failure()) call->work->fail(error);  // it came between
}

void StagedEngine::queue_copies_in(StagedCall& call) {
  const c10::Stream caller = current_stream(call.device.index());
  refuse_in_capture(caller, "A collective that goes through the host");
  const Streams streams = this->streams(call.device);
  call.ready = pooled_event(call.device.index());
  call.ready->record(caller);
  const auto is_copied = [](const HostCopy& copy) { return !copy.is_alias() && copy.is_read(); };
  if (std::any_of(call.copies.begin(), call.copies.end(), is_copied)) {
    call.ready->block(streams.in);
    const c10::StreamGuard guard(streams.in);
    for (HostCopy& copy : call.copies) copy.copy_to_host();
    call.ready = pooled_event(call.device.index());
    call.ready->record(streams.in);
  }
  // Until the network's part is over the call holds its tensors; what is queued then is behind nothing of their stream.
  for (const HostCopy& copy : call.copies) {
    if (!copy.is_alias() && copy.is_written()) caching_allocator().recordStream(copy.tensor().storage().data_ptr(), streams.out);
  }
}

void StagedEngine::wait_until_ready(const StagedCall& call) const {
  while (!call.ready->wait(std::chrono::nanoseconds(kSlice).count())) {
    if (failure() != nullptr) return;
    TORCH_CHECK_WITH(DistBackendError, Clock::now() < call.deadline, "the device has not produced the input within ", call.timeout.count(),
                     " ms, which is the timeout");
  }
}

void StagedEngine::start(const std::shared_ptr<StagedCall>& call) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    if (call->agreement != nullptr) call->agreement->start(*gloo_, left_of(call->deadline));
    wait_until_ready(*call);
    if (failure() != nullptr) return forget(call);
    if (call->agreement != nullptr) call->agreement->check(*gloo_, call->deadline + kGloosOwnError);
    if (failure() != nullptr) return forget(call);
    if (call->start) call->inner = call->start(left_of(call->deadline));
  } catch (const std::exception& error) {
    return fail(call, error);
  }
  waiters_.add([self = shared_from_this(), call] { self->complete(call); });
}

void StagedEngine::complete(const std::shared_ptr<StagedCall>& call) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    if (call->inner != nullptr) call->inner->wait(left_of(call->deadline) + kGloosOwnError);
    if (failure() != nullptr) return forget(call);  // it was told
    if (call->finish) call->finish(call->inner, left_of(call->deadline) + kGloosOwnError);
    if (call->work->retrieveOpType() == c10d::OpType::RECVANYSOURCE) call->work->set_source(call->inner->sourceRank());
    const c10::Stream out = streams(call->device).out;
    const c10::StreamGuard guard(out);  // the future's callbacks, too
    PooledEvent copied;
    for (HostCopy& copy : call->copies) {
      if (copy.is_alias() || !copy.is_written()) continue;
      copy.copy_from_host();
      copied = pooled_event(call->device.index());
    }
    if (copied != nullptr) copied->record(out);
    forget(call);
    call->work->finish_part(std::move(copied));
  } catch (const std::exception& error) {
    fail(call, error);
  }
}

void StagedEngine::forget(const std::shared_ptr<StagedCall>& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_.erase(call);
  if (pending_.empty()) idle_.notify_all();
}

void StagedEngine::fail(const std::shared_ptr<StagedCall>& call, const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torchs != nullptr ? torchs->what_without_backtrace() : error.what();
  fail_all(std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, __LINE__},
      c10::str(call->name, " of ", group_, " failed: ", text, "\nThe group cannot be used any more: destroy it, and make another."))));
  forget(call);
}

void StagedEngine::fail_all(const std::exception_ptr& error) {
  std::set<std::shared_ptr<StagedCall>> failed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ == nullptr) failure_ = error;
    failed = pending_;
  }
  for (const auto& call : failed) call->work->fail(failure());
}

void StagedEngine::abort(const std::string& why) {
  if (in_bad_fork()) return;  // the parent's threads and connections
  fail_all(std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, c10::str(group_, " ", why))));
  gloo_->abort();
}

void StagedEngine::shutdown() {
  if (in_bad_fork()) return;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (failure_ == nullptr) idle_.wait_for(lock, kPatience, [&] { return pending_.empty() || failure_ != nullptr; });
  }
  abort("was shut down");
  collectives_.close(kSlice * 5);
  messages_.close(kSlice * 5);
  waiters_.close(kSlice * 5);
}

}  // namespace backplane::distributed
