// runtime/event.cpp: driver events with an owner, and the pool that recycles them.
#include "runtime/event.h"

#include <c10/util/Exception.h>

#include <array>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/activity.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane {

Event::Event(Event&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      device_(std::exchange(other.device_, -1)),
      flags_(other.flags_),
      capture_(other.capture_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(device_, other.device_);
  std::swap(flags_, other.flags_);
  std::swap(capture_, other.capture_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) call_noexcept<&bp_driver::event_destroy>(device_, handle_);
}

void Event::create(c10::DeviceIndex device) {
  if (handle_ != nullptr) return;
  call<&bp_driver::event_create>(device, flags_, &handle_);
  device_ = device;
}

Event Event::adopt(bp_event* handle, c10::DeviceIndex device, uint32_t flags) {
  Event event(flags);
  event.handle_ = handle;
  event.device_ = device;
  return event;
}

void Event::record(const c10::Stream& stream) {
  const auto device = stream.device_index();
  bp_stream* on = stream_handle(stream);
  create(device);
  TORCH_CHECK(device == device_, "Event device ", static_cast<int>(device_), " does not match recording stream's device ",
              static_cast<int>(device), ".");
  const uint64_t capture = capture_id(stream);
  TORCH_CHECK(capture == 0 || (flags_ & BP_EVENT_IPC) == 0, "An event that is shared between processes cannot be recorded into a graph.");
  call<&bp_driver::event_record>(device, on, handle_, 0u);
  capture_ = capture;
  note(ActivityKind::record, device, stream.id(), reinterpret_cast<uint64_t>(handle_));
}

// Checked before the driver is called, because there the call would make the capture invalid.
void Event::check_wait(const c10::Stream& stream) const {
  const uint64_t own = capture_id(stream);
  TORCH_CHECK(own == 0 || capture_ == own, "Stream ", stream.id(), " of ", stream.device(),
              " is capturing a graph, and the event that it is to wait for was recorded outside of that capture. Wait for it before the "
              "capture begins, or record it on a stream that takes part.");
  TORCH_CHECK(own != 0 || is_active_capture(capture_), "The event was recorded in the capture of a graph that has ended; record it again.");
  TORCH_CHECK(own != 0 || (stream.device_index() == device_ && stream.id() != 0),
              "Only streams of one device, and not its default stream, can take part in the capture of a graph; ", stream.device(),
              ", stream ", stream.id(), ", is to wait for an event of one.");
}

void Event::refuse_captured(const char* what) const {
  TORCH_CHECK(capture_ == 0, what,
              " is not possible: the event's latest record is part of a graph. Record it again, outside of a capture.");
}

void Event::block(const c10::Stream& stream) const {
  if (handle_ == nullptr) return;
  if (C10_UNLIKELY(capture_ != 0 || anything_captures()) && (capture_ != 0 || capture_id(stream) != 0)) check_wait(stream);
  call<&bp_driver::stream_wait>(stream.device_index(), stream_handle(stream), handle_);
  note(ActivityKind::wait, stream.device_index(), stream.id(), reinterpret_cast<uint64_t>(handle_));
}

bool Event::query() const {
  if (handle_ == nullptr) return true;
  refuse_captured("A query of an event");
  const int32_t status = try_call<&bp_driver::event_query>(device_, handle_);
  if (status != BP_OK && status != BP_PENDING) throw_status(status, "event_query", device_, last_error_text());
  return status == BP_OK;
}

void Event::synchronize() const {
  if (handle_ == nullptr) return;
  refuse_captured("A wait for an event");
  refuse_in_capture(current_stream(device_), "A wait for an event");
  if (!query()) {
    const int32_t status =
        interruptible_wait([&](uint64_t timeout_ns) { return try_call<&bp_driver::event_synchronize>(device_, handle_, timeout_ns); });
    if (status != BP_OK) throw_waited(status, "event_synchronize", device_, last_error_text());
  }
  note(ActivityKind::event_done, device_, 0, reinterpret_cast<uint64_t>(handle_));
}

bool Event::wait(uint64_t timeout_ns) const {
  if (handle_ == nullptr) return true;
  if (C10_UNLIKELY(anything_captures())) return poll(timeout_ns);
  const int32_t status = try_call<&bp_driver::event_synchronize>(device_, handle_, timeout_ns);
  if (status == BP_TIMEOUT) return false;
  if (status != BP_OK) throw_status(status, "event_synchronize", device_, last_error_text());
  note(ActivityKind::event_done, device_, 0, reinterpret_cast<uint64_t>(handle_));
  return true;
}

// Called by a thread of the core that waits for other work, which the mode of a capture may forbid: it only queries.
bool Event::poll(uint64_t timeout_ns) const {
  const auto begin = std::chrono::steady_clock::now();
  while (!query()) {
    const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
    if (timeout_ns != BP_NO_TIMEOUT && static_cast<uint64_t>(passed) >= timeout_ns) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  note(ActivityKind::event_done, device_, 0, reinterpret_cast<uint64_t>(handle_));
  return true;
}

double Event::elapsed_ms(const Event& end) const {
  TORCH_CHECK(handle_ != nullptr && end.handle_ != nullptr, "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK((flags_ & end.flags_ & BP_EVENT_TIMING) != 0, "Both events must be created with argument 'enable_timing=True'.");
  TORCH_CHECK(device_ == end.device_, "Both events must be recorded on the same device: they are of device ", static_cast<int>(device_),
              " and ", static_cast<int>(end.device_), ".");
  refuse_captured("Elapsed time");
  end.refuse_captured("Elapsed time");
  int64_t ns = 0;
  const int32_t status = try_call<&bp_driver::event_elapsed>(device_, handle_, end.handle_, &ns);
  TORCH_CHECK(status != BP_PENDING, "Both events must be completed before calculating elapsed time: synchronize the end event first.");
  if (status != BP_OK) throw_status(status, "event_elapsed", device_, last_error_text());
  return static_cast<double>(ns) / 1e6;
}

namespace event_pool_impl {
namespace {

struct Pool {
  std::mutex mutex;  // protects only the list; events are created and destroyed outside
  std::vector<Event*> idle;
};

Pool& pool(c10::DeviceIndex device) {
  static auto* pools = new std::array<Pool, kMaxDevices>();
  return (*pools)[static_cast<size_t>(device)];
}

constexpr size_t kMaxIdle = 1024;

}  // namespace
}  // namespace event_pool_impl

PooledEvent pooled_event(c10::DeviceIndex device) {
  check_device(device);
  auto& pool = event_pool_impl::pool(device);
  {
    const std::lock_guard<std::mutex> lock(pool.mutex);
    if (!pool.idle.empty()) {
      PooledEvent event(pool.idle.back());
      pool.idle.pop_back();
      return event;
    }
  }
  return PooledEvent(new Event());
}

void EventRecycler::operator()(Event* event) const noexcept {
  if (event->device() >= 0) {
    auto& pool = event_pool_impl::pool(event->device());
    const std::lock_guard<std::mutex> lock(pool.mutex);
    if (pool.idle.size() < event_pool_impl::kMaxIdle) {
      pool.idle.push_back(event);
      return;
    }
  }
  delete event;
}

}  // namespace backplane
