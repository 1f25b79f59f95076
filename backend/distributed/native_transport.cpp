// distributed/native_transport.cpp: the life cycle of communicators, and the submission of calls; see native_calls.h.
#include "distributed/native_transport.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/driver.h"
#include "runtime/wait.h"

namespace backplane::distributed {
namespace native_transport_impl {
namespace {

// A message does not join, since it involves no other rank: without a communicator it is staged. In the first batch of messages all ranks
// take part (torch.distributed.batch_isend_irecv).
bool joins(const Request& request) {
  return request.is_batched ||
         (request.type != c10d::OpType::SEND && request.type != c10d::OpType::RECV && request.type != c10d::OpType::RECVANYSOURCE);
}

}  // namespace
}  // namespace native_transport_impl

NativeTransport::NativeTransport(c10::intrusive_ptr<c10d::Store> store, std::string group, int rank, int size,
                                 c10::intrusive_ptr<GroupOptions> options)
    : store_(std::move(store)), group_(std::move(group)), rank_(rank), size_(size), options_(std::move(options)) {}

std::vector<std::shared_ptr<Communicator>> NativeTransport::communicators() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return communicators_;
}

std::shared_ptr<Communicator> NativeTransport::communicator_on(c10::Device device) {
  for (const auto& one : communicators()) {
    if (one->device() == device) return one;
  }
  return nullptr;
}

std::optional<c10::Device> NativeTransport::device() {
  const auto all = communicators();
  return all.empty() ? std::nullopt : std::optional<c10::Device>(all.front()->device());
}

std::unique_ptr<Calls> NativeTransport::calls(const Request& request) {
  auto communicator = communicator_on(request.device);
  if (communicator == nullptr && native_transport_impl::joins(request)) communicator = connect(request.device);
  if (communicator == nullptr) {
    throw_if_failed();
    return nullptr;
  }
  return std::make_unique<NativeCalls>(*this, std::move(communicator), request);
}

// A store's own wait cannot be interrupted, and blocks other users of the store: it is polled, at increasing intervals.
std::string NativeTransport::exchange_id(const std::string& key, std::string id, Communicator::Deadline deadline) {
  if (rank_ == 0) {
    store_->set(key, std::vector<uint8_t>(id.begin(), id.end()));
    return id;
  }
  std::chrono::nanoseconds pause = std::chrono::milliseconds(1);
  const int32_t status = interruptible_wait([&](uint64_t slice_ns) -> int32_t {
    throw_if_failed();
    if (store_->check({key})) return BP_OK;
    if (std::chrono::steady_clock::now() >= deadline) return BP_PENDING;
    std::this_thread::sleep_for(std::min(pause, std::chrono::nanoseconds(std::min<uint64_t>(slice_ns, 1'000'000'000))));
    pause *= 2;
    return BP_TIMEOUT;
  });
  TORCH_CHECK_WITH(DistBackendError, status == BP_OK, "rank 0 did not join within ",
                   status == BP_PENDING ? c10::str(options_->timeout.count(), " ms, the timeout") : "the watchdog's limit");
  const std::vector<uint8_t> bytes = store_->get(key);
  return std::string(bytes.begin(), bytes.end());
}

std::shared_ptr<Communicator> NativeTransport::connect(c10::Device device) {
  if (auto communicator = communicator_on(device)) return communicator;
  const std::lock_guard<std::mutex> lock(joining_);
  if (auto communicator = communicator_on(device)) return communicator;  // another thread has joined meanwhile
  throw_if_failed();
  try {
    return join(device);
  } catch (const std::exception& error) {
    for (const auto& one : communicators()) one->abort("cannot be used any more: another device of this rank has not joined");
    fail(c10::str("has not joined its ranks on ", device, ": ", text_of(error), "\nDestroy it, and make another."));
    if (dynamic_cast<const c10::DistError*>(&error) != nullptr) throw_if_failed();  // errors of the store are of other classes
    throw;
  }
}

std::shared_ptr<Communicator> NativeTransport::join(c10::Device device) {
  const std::string key = c10::str("bp.collective/", communicators().size());  // the same on all ranks
  auto communicator = Communicator::connect(
      device, settings(), [&](std::string id, Communicator::Deadline deadline) { return exchange_id(key, std::move(id), deadline); },
      [&] { throw_if_failed(); });
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);  // aborted by a thread that did not know this communicator
  communicators_.push_back(communicator);
  return communicator;
}

void NativeTransport::begin_batch(c10::Device device) {
  batch_ = std::make_unique<Submission>(Submission{device, options_->timeout, "a batch of calls"});
}

void NativeTransport::end_batch(const c10::intrusive_ptr<GroupWork>& work) {
  const std::unique_ptr<Submission> batch = std::exchange(batch_, nullptr);
  if (!batch->calls.empty()) submit(communicator_on(batch->device), *batch, work);
}

void NativeTransport::submit(const std::shared_ptr<Communicator>& communicator, const Submission& submission,
                             const c10::intrusive_ptr<GroupWork>& work) {
  if (batch_ == nullptr) return work->queued(communicator, communicator->run(submission));
  TORCH_CHECK_VALUE(batch_->calls.empty() || batch_->device == submission.device, submission.name, ": a tensor is on ", submission.device,
                    ", earlier calls of the batch are on ", batch_->device);
  batch_->add(submission);
}

void NativeTransport::split(int color, NativeTransport* part) {
  for (const auto& one : communicators()) {
    if (!one->has(BP_COLLECTIVE_SPLIT)) return;
    auto own = one->split(color, part != nullptr ? part->settings() : settings());
    if (part != nullptr) part->communicators_.push_back(std::move(own));
  }
}

std::exception_ptr NativeTransport::failure() {
  for (const auto& one : communicators()) {
    if (const std::exception_ptr error = one->failure()) return error;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void NativeTransport::throw_if_failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void NativeTransport::fail(const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ == nullptr) failure_ = std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, group_ + " " + why));
}

// fail() comes first: a thread that is joining sees it, and adds no communicator.
void NativeTransport::abort(const std::string& why) {
  fail(why);
  for (const auto& one : communicators()) one->abort(why);
}

void NativeTransport::shutdown() {
  fail("was shut down");
  for (const auto& one : communicators()) one->shutdown();
}

}  // namespace backplane::distributed
