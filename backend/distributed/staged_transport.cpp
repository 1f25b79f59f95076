// distributed/staged_transport.cpp: runs calls through the host. See Note [Staged calls].
#include "distributed/staged_transport.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "distributed/deadline.h"
#include "distributed/staged_calls.h"
#include "memory/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

namespace backplane::distributed {
namespace staged_transport_impl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostWaiters = 64;          // threads; further calls in flight wait for one
constexpr milliseconds kSlice{20};           // the delay until an abort is noticed
constexpr milliseconds kGloosOwnError{500};  // Gloo gets this much longer, because its error is more specific

template <class Range>
bool overlap(const std::vector<Range>& some, const std::vector<Range>& others) {
  return std::any_of(some.begin(), some.end(), [&](const Range& one) {
    return std::any_of(others.begin(), others.end(), [&](const Range& other) { return one.begin < other.end && other.begin < one.end; });
  });
}

uint64_t extent_of(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return tensor.numel() == 0 ? 0 : static_cast<uint64_t>((last + 1) * tensor.element_size());
}

}  // namespace
}  // namespace staged_transport_impl

using namespace staged_transport_impl;

StagedTransport::StagedTransport(std::string group, c10::intrusive_ptr<c10d::Backend> gloo)
    : group_(std::move(group)),
      gloo_(std::move(gloo)),
      collectives_("ccl_start", 1),
      messages_("ccl_message", 1),
      waiters_("ccl_wait", kMostWaiters) {}

StagedTransport::Streams StagedTransport::streams(c10::Device device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) return found->second;
  const int priority = device_properties(device.index()).priority_greatest;
  const Streams made{pool_stream(device.index(), priority), pool_stream(device.index(), priority)};
  return streams_.emplace(device.index(), made).first->second;
}

std::unique_ptr<Calls> StagedTransport::calls(const Request& request) {
  if (const std::exception_ptr error = failure()) std::rethrow_exception(error);
  return std::make_unique<StagedCalls>(*this, request);
}

std::exception_ptr StagedTransport::failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void StagedTransport::submit(std::shared_ptr<StagedCall> call) {
  TORCH_CHECK(!in_bad_fork(), group_, " was made by the parent of this process; a forked child must make its own process group");
  if (const std::exception_ptr error = failure()) std::rethrow_exception(error);
  const c10::Stream caller = current_stream(call->device.index());
  refuse_in_capture(caller, "A collective that goes through the host");
  find_earlier(*call);
  call->ready = pooled_event(call->device.index());
  call->ready->record(caller);
  if (call->earlier.empty()) queue_copies_in(*call);
  // The call holds its tensors until the network's part is complete; the copies that follow are not ordered on their stream.
  for (const HostCopy& copy : call->copies) {
    if (!copy.is_alias() && copy.is_written()) {
      caching_allocator().recordStream(copy.tensor().storage().data_ptr(), streams(call->device).out);
    }
  }
  call->deadline = Clock::now() + call->timeout;
  {
    const std::lock_guard<std::mutex> lock(mutex_);  // protects both: calls start in the order of their numbers
    call->number = submitted_++;
    pending_.emplace(call->number, call);
    (call->is_message ? messages_ : collectives_).add([self = shared_from_this(), call] { self->start(call); });
  }
  if (const std::exception_ptr error = failure()) call->work->fail(error);  // it failed meanwhile
}

bool StagedTransport::must_follow(const StagedCall& call, const StagedCall& before) {
  if (call.work == before.work) return false;
  return overlap(call.written, before.written) || overlap(call.written, before.read) || overlap(call.read, before.written);
}

void StagedTransport::find_earlier(StagedCall& call) {
  for (const HostCopy& copy : call.copies) {
    if (copy.is_written()) {  // first: a lazy clone gets its own memory, by a copy on the caller's stream
      const auto begin = reinterpret_cast<uint64_t>(copy.tensor().mutable_data_ptr());
      call.written.push_back({begin, begin + extent_of(copy.tensor())});
    }
    if (copy.is_read()) {
      const auto begin = reinterpret_cast<uint64_t>(copy.from().const_data_ptr());
      call.read.push_back({begin, begin + extent_of(copy.from())});
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, before] : pending_) {
    if (must_follow(call, *before)) call.earlier.push_back(number);
  }
}

// After the caller's work at the time of the call, and after the copies back of completed calls.
void StagedTransport::queue_copies_in(StagedCall& call) {
  const Streams streams = this->streams(call.device);
  const PooledEvent copied_back = pooled_event(call.device.index());
  copied_back->record(streams.out);
  copied_back->block(streams.in);
  call.ready->block(streams.in);
  const c10::StreamGuard guard(streams.in);
  for (HostCopy& copy : call.copies) copy.copy_to_host();
  call.ready = pooled_event(call.device.index());
  call.ready->record(streams.in);
}

void StagedTransport::wait_for_earlier(const StagedCall& call) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool are_over = over_.wait_until(lock, call.deadline, [&] {
    const auto is_over = [&](uint64_t number) { return pending_.count(number) == 0; };
    return failure_ != nullptr || std::all_of(call.earlier.begin(), call.earlier.end(), is_over);
  });
  TORCH_CHECK_WITH(DistBackendError, are_over, "an earlier call of the group on the same memory did not complete within ",
                   call.timeout.count(), " ms, the timeout");
}

// Each earlier call completes, or fails the group at its deadline.
void StagedTransport::wait_for_turn(const StagedCall& call) {
  if (call.is_message) return;
  std::unique_lock<std::mutex> lock(mutex_);
  over_.wait(lock, [&] {
    const auto is_before = [&](const auto& one) { return !one.second->is_message && one.second->device == call.device; };
    return failure_ != nullptr || std::none_of(pending_.begin(), pending_.find(call.number), is_before);
  });
}

void StagedTransport::wait_until_ready(const StagedCall& call) {
  while (!call.ready->wait(std::chrono::nanoseconds(kSlice).count())) {
    if (failure() != nullptr) return;
    TORCH_CHECK_WITH(DistBackendError, Clock::now() < call.deadline, "the device has not produced the input within ", call.timeout.count(),
                     " ms, the timeout");
  }
}

void StagedTransport::start(const std::shared_ptr<StagedCall>& call) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    if (call->fingerprint != nullptr) call->fingerprint->start(*gloo_, left_of(call->deadline));
    if (!call->earlier.empty()) {
      wait_for_earlier(*call);
      if (failure() != nullptr) return forget(call);
      queue_copies_in(*call);
    }
    wait_until_ready(*call);
    if (failure() != nullptr) return forget(call);
    if (call->fingerprint != nullptr) call->fingerprint->check(*gloo_, call->deadline + kGloosOwnError);
    if (failure() != nullptr) return forget(call);
    if (call->start) call->inner = call->start(left_of(call->deadline));
  } catch (const std::exception& error) {
    return fail(call, error);
  }
  waiters_.add([self = shared_from_this(), call] { self->complete(call); });
}

void StagedTransport::complete(const std::shared_ptr<StagedCall>& call) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    if (call->inner != nullptr) call->inner->wait(left_of(call->deadline) + kGloosOwnError);
    if (failure() != nullptr) return forget(call);  // it was reported
    if (call->finish) call->finish(call->inner, left_of(call->deadline) + kGloosOwnError);
    if (call->work->retrieveOpType() == c10d::OpType::RECVANYSOURCE) call->work->set_source(call->inner->sourceRank());
    wait_for_turn(*call);
    if (failure() != nullptr) return forget(call);
    const c10::Stream out = streams(call->device).out;
    const c10::StreamGuard guard(out);
    for (HostCopy& copy : call->copies) copy.copy_from_host();
    PooledEvent copied = pooled_event(call->device.index());
    copied->record(out);  // also follows the copies of earlier calls
    forget(call);
    call->work->finish_part(std::move(copied), out);
  } catch (const std::exception& error) {
    fail(call, error);
  }
}

void StagedTransport::forget(const std::shared_ptr<StagedCall>& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_.erase(call->number);
  over_.notify_all();
}

void StagedTransport::fail(const std::shared_ptr<StagedCall>& call, const std::exception& error) {
  fail_all(std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__},
                                                         c10::str(call->name, " of ", group_, " failed: ", text_of(error),
                                                                  "\nThe group cannot be used any more: destroy it, and make another."))));
  forget(call);
}

void StagedTransport::fail_all(const std::exception_ptr& error) {
  std::map<uint64_t, std::shared_ptr<StagedCall>> failed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ == nullptr) failure_ = error;
    failed = pending_;
    over_.notify_all();
  }
  for (const auto& [number, call] : failed) call->work->fail(failure());
}

void StagedTransport::abort(const std::string& why) {
  if (in_bad_fork()) return;  // the parent's threads and connections
  fail_all(std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, c10::str(group_, " ", why))));
  gloo_->abort();
}

void StagedTransport::shutdown() {
  if (in_bad_fork()) return;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (failure_ == nullptr) over_.wait_for(lock, kShutdownTimeout, [&] { return pending_.empty() || failure_ != nullptr; });
  }
  abort("was shut down");
  collectives_.close(kSlice * 5);
  messages_.close(kSlice * 5);
  waiters_.close(kSlice * 5);
}

}  // namespace backplane::distributed
