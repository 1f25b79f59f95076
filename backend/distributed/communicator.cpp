// distributed/communicator.cpp: calls of bp.collective, their order, and their completion. See Note [A collective that fails].
#include "distributed/communicator.h"

#include <c10/core/StreamGuard.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <thread>
#include <utility>

#include "distributed/deadline.h"
#include "distributed/native_watch.h"
#include "distributed/workers.h"
#include "memory/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane::distributed {
namespace communicator_impl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const bp_collective& group() { return *open_driver().group<bp_collective>(); }

uint64_t in_ns(milliseconds time) { return static_cast<uint64_t>(std::chrono::nanoseconds(time).count()); }

// For communicators that cannot run concurrently: the last one's work.
struct Turn {
  std::mutex mutex;
  std::shared_ptr<NativeCall> last;
};
Turn& turn_of(c10::Device device) {
  static auto* turns = new std::array<Turn, kMaxDevices>();
  return (*turns)[static_cast<size_t>(device.index())];
}

bp_comm_config config_of(const CommunicatorSettings& settings, bool can_abort) {
  bp_comm_config config{};
  config.struct_size = sizeof config;
  config.name = settings.group.c_str();
  config.timeout_ns = in_ns(settings.timeout);
  config.work_timeout_ns = can_abort ? BP_NO_TIMEOUT : in_ns(settings.timeout);  // the watch applies each call's own timeout
  config.rank = settings.rank;
  config.size = settings.size;
  return config;
}

// Shared by the thread that joins and the thread that waits for it.
struct Joining {
  std::mutex mutex;
  std::condition_variable over;
  bool is_over = false, is_left = false;  // left: the waiting thread has given up
  bp_comm* comm = nullptr;
  std::exception_ptr error;

  void destroy() const {  // if nobody takes it over
    if (comm != nullptr) detail::invoke<&bp_collective::destroy>(open_driver(), comm, uint64_t{0});
  }
};

}  // namespace
}  // namespace communicator_impl

using namespace communicator_impl;

void check_collective(int32_t status, const char* call, c10::Device device) {
  if (status == BP_OK) return;
  const std::string text = last_error_text();
  if (status == BP_FAULT || status == BP_DEVICE_LOST || status == BP_OUT_OF_MEMORY) throw_status(status, call, device.index(), text);
  TORCH_CHECK_WITH(DistBackendError, false, status_message(status, call, device.index(), text));
}

bp_collective_properties collective_properties(c10::DeviceIndex device) {
  bp_collective_properties properties{};
  properties.struct_size = sizeof properties;
  const int32_t status = detail::invoke<&bp_collective::properties>(*loaded_driver(), driver_index(device), &properties);
  if (status != BP_OK) throw_status(status, "bp.collective.properties", device, last_error_text());
  return properties;
}

std::shared_ptr<Communicator> Communicator::connect(c10::Device device, const CommunicatorSettings& settings, const ExchangeId& exchange_id,
                                                    const std::function<void()>& check) {
  const auto deadline = Clock::now() + settings.timeout;
  const bp_collective_properties properties = collective_properties(device.index());
  std::string id;
  std::exception_ptr no_id;
  if (settings.rank == 0) {
    try {
      id.resize(properties.id_bytes);
      call<&bp_collective::make_id>(device.index(), static_cast<void*>(id.data()));
    } catch (...) {
      no_id = std::current_exception();
      id.clear();  // the others wait for an id
    }
  }
  id = exchange_id(std::move(id), deadline);
  if (no_id) std::rethrow_exception(no_id);
  TORCH_CHECK_WITH(DistBackendError, !id.empty(), "the driver of rank 0 made no id; see the error of that rank");
  TORCH_CHECK_WITH(DistBackendError, id.size() == properties.id_bytes, "rank 0 has another driver: its id has ", id.size(),
                   " bytes, an id of this driver has ", properties.id_bytes);

  // The driver's call cannot be interrupted, but the wait for it can.
  const auto joining = std::make_shared<Joining>();
  std::thread([joining, device, settings, id, deadline] {
    pthread_setname_np(pthread_self(), "ccl_join");
    bp_comm* comm = nullptr;
    std::exception_ptr error;
    try {
      const DeviceSwitch on(device.index());
      bp_comm_config config = config_of(settings, (group().head.flags & BP_COLLECTIVE_ABORT) != 0);
      config.id = id.data();
      config.timeout_ns = in_ns(left_of(deadline));
      check_collective(try_call<&bp_collective::create>(device.index(), &config, &comm), "bp.collective.create", device);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(joining->mutex);
    joining->comm = comm;
    joining->error = error;
    joining->is_over = true;
    if (joining->is_left) joining->destroy();
    joining->over.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(joining->mutex);
  try {
    interruptible_wait([&](uint64_t slice_ns) -> int32_t {
      check();
      const auto slice = std::chrono::nanoseconds(std::min<uint64_t>(slice_ns, 1'000'000'000));
      return joining->over.wait_for(lock, slice, [&] { return joining->is_over; }) ? BP_OK : BP_TIMEOUT;
    });
  } catch (...) {
    joining->is_left = true;
    joining->destroy();
    throw;
  }
  joining->is_left = !joining->is_over;
  if (joining->error) std::rethrow_exception(joining->error);
  TORCH_CHECK_WITH(DistBackendError, joining->is_over, settings.group, ": not all ranks joined within the watchdog's limit");
  auto communicator = std::make_shared<Communicator>(device, settings.group, joining->comm);
  watch(communicator);
  return communicator;
}

std::shared_ptr<Communicator> Communicator::split(int color, const CommunicatorSettings& settings) {
  if (const std::exception_ptr error = failure()) std::rethrow_exception(error);
  const std::lock_guard<std::mutex> lock(calls_);
  bp_comm_config config = config_of(settings, has(BP_COLLECTIVE_ABORT));
  bp_comm* comm = nullptr;
  check_collective(detail::invoke<&bp_collective::split>(open_driver(), comm_, color, &config, &comm), "bp.collective.split", device_);
  if (comm == nullptr) return nullptr;
  auto communicator = std::make_shared<Communicator>(device_, settings.group, comm);
  watch(communicator);
  return communicator;
}

Communicator::Communicator(c10::Device device, std::string group, bp_comm* comm)
    : device_(device),
      group_(std::move(group)),
      stream_(pool_stream(device.index(), device_properties(device.index()).priority_greatest)),
      properties_(collective_properties(device.index())),
      comm_(comm) {}

Communicator::~Communicator() { destroy(); }

bool Communicator::has(uint32_t flag) const { return (group().head.flags & flag) != 0; }

void Communicator::follow_caller() const {
  const c10::Stream caller = current_stream(device_.index());
  if (!has(BP_COLLECTIVE_CAPTURE)) refuse_in_capture(caller, "A collective of this driver");
  const PooledEvent ready = pooled_event(device_.index());
  ready->record(caller);
  ready->block(stream_);
}

void Submission::add(const Submission& other) {
  calls.insert(calls.end(), other.calls.begin(), other.calls.end());
  kept.insert(kept.end(), other.kept.begin(), other.kept.end());
  after.insert(after.end(), other.after.begin(), other.after.end());
  timeout = std::max(timeout, other.timeout);
  device = other.device;
}

std::shared_ptr<NativeCall> Communicator::run(const Submission& submission) {
  const auto& [device, timeout, name, kept, calls, after] = submission;
  TORCH_CHECK(!in_bad_fork(), group_, " was made by the parent of this process; a forked child must make its own process group");
  if (const std::exception_ptr error = failure()) std::rethrow_exception(error);
  const bool is_group = calls.size() > 1;
  const uint32_t most = properties_.max_group;
  TORCH_CHECK_NOT_IMPLEMENTED(!is_group || most == 0 || calls.size() <= most, name, " makes ", calls.size(),
                              " calls of the driver at once, and it supports ", most, ": use smaller batches, or ", BACKPLANE_ENV_PREFIX,
                              "_DIST=staged");
  // Recorded before: when a call fails, earlier ones may be queued.
  for (const at::Tensor& tensor : kept) {
    if (tensor.numel() > 0) caching_allocator().recordStream(tensor.storage().data_ptr(), stream_);
  }
  const auto call = std::make_shared<NativeCall>();
  call->name = name;
  call->timeout = timeout;
  call->done = pooled_event(device_.index());

  const std::lock_guard<std::mutex> lock(calls_);
  follow_caller();
  std::unique_lock<std::mutex> turn;
  if (!has(BP_COLLECTIVE_CONCURRENT)) {
    turn = std::unique_lock<std::mutex>(turn_of(device_).mutex);
    if (const auto& last = turn_of(device_).last) last->done->block(stream_);
    turn_of(device_).last = call;
  }
  const c10::StreamGuard guard(stream_);
  const auto begin = [&] {
    check_collective(detail::invoke<&bp_collective::group_begin>(open_driver()), "bp.collective.group_begin", device_);
  };
  const auto end = [&] { return detail::invoke<&bp_collective::group_end>(open_driver()); };
  bool is_open = false;
  try {
    if (is_group) begin();
    is_open = is_group;
    for (const auto& one : calls) one(comm_, stream_handle(stream_));
    is_open = false;
    if (is_group) check_collective(end(), "bp.collective.group_end", device_);
    for (const auto& one : after) one();
    call->done->record(stream_);
  } catch (const std::exception& error) {
    if (is_open) end();
    abort(c10::str("cannot be used any more: ", name, " failed only on this rank: ", text_of(error)));
    throw;
  }
  call->deadline = Clock::now() + timeout;
  if (is_capturing(stream_)) return call;  // it runs when the graph is replayed
  const std::lock_guard<std::mutex> watched(mutex_);
  queued_.push_back(call);
  if (queued_.size() == 1) wake_watch();
  return call;
}

void Communicator::fail(const std::string& why) {
  if (failure_ != nullptr) return;
  failure_ = std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, __LINE__}, c10::str(group_, " ", why, "\nDestroy it, and make another.")));
  if (comm_ != nullptr && has(BP_COLLECTIVE_ABORT)) detail::invoke<&bp_collective::abort>(open_driver(), comm_);
}

void Communicator::look_locked() {
  if (comm_ == nullptr || queued_.empty() || failure_ != nullptr) return;
  const auto has_failed = [&] {
    int32_t status = BP_OK;
    char text[512] = "";
    if (detail::invoke<&bp_collective::status>(open_driver(), comm_, &status, &text[0], uint64_t{sizeof text}) != BP_OK) {
      status = BP_INTERNAL;
    }
    if (status == BP_OK) return false;
    fail(c10::str("failed in ", queued_.front()->name, ": ", status_message(status, "bp.collective.status", device_.index(), text)));
    return true;
  };
  if (has_failed()) return;
  size_t over = 0;
  while (over < queued_.size() && queued_[over]->done->query()) ++over;
  if (over > 0 && has_failed()) return;  // failed between the two checks: the completed calls are not valid
  for (; over > 0; --over) {
    queued_.front()->ended_well = true;
    queued_.pop_front();
  }
  if (queued_.empty() || Clock::now() < queued_.front()->deadline) return;
  fail(c10::str("failed: ", queued_.front()->name, " did not complete within ", queued_.front()->timeout.count(), " ms, the timeout"));
}

bool Communicator::look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    look_locked();
  } catch (const std::exception& error) {  // an error of the device, which its next user and this group report
    fail(c10::str("failed with its device: ", error.what()));
  }
  return comm_ != nullptr && !queued_.empty() && failure_ == nullptr;
}

std::exception_ptr Communicator::failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  look_locked();
  return failure_;
}

std::exception_ptr Communicator::check_for_user() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_reported_) return nullptr;
  look_locked();
  return failure_;
}

void Communicator::abort(const std::string& why) {
  if (in_bad_fork()) return;  // the parent's communicator
  const std::lock_guard<std::mutex> lock(mutex_);
  fail(why);
  if (!is_reported_ && !queued_.empty()) keep_unreported(failure_);
  is_reported_ = true;
}

void Communicator::shutdown() {
  if (in_bad_fork()) return;
  std::shared_ptr<NativeCall> last;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_ == nullptr && !queued_.empty()) last = queued_.back();
  }
  try {
    if (last != nullptr) last->done->wait(in_ns(kShutdownTimeout));
  } catch (const c10::Error&) {
    // The device is in error, which its own waits report: no work continues.
  }
  destroy();  // without an abort, so that the peers' work continues
  const std::lock_guard<std::mutex> lock(mutex_);
  fail("was shut down");
  queued_.clear();
  is_reported_ = true;
}

void Communicator::destroy() noexcept {
  const std::lock_guard<std::mutex> lock(calls_);
  bp_comm* comm = nullptr;
  {
    const std::lock_guard<std::mutex> held(mutex_);
    comm = std::exchange(comm_, nullptr);
  }
  const Driver* driver = driver_if_open();  // NULL in a forked child
  if (comm == nullptr || driver == nullptr) return;
  int32_t status = detail::invoke<&bp_collective::destroy>(*driver, comm, in_ns(kShutdownTimeout));
  if (status == BP_TIMEOUT && has(BP_COLLECTIVE_ABORT)) {
    detail::invoke<&bp_collective::abort>(*driver, comm);
    status = detail::invoke<&bp_collective::destroy>(*driver, comm, in_ns(kShutdownTimeout));
  }
  if (status != BP_OK) log_status(status, "bp.collective.destroy", device_.index(), last_error_text());
}

}  // namespace backplane::distributed
