// runtime/capture.cpp: the captures of this process that other calls must know of.
#include "runtime/capture.h"

#include <backplane/kernel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/overrides.h"
#include "runtime/stream.h"

namespace backplane {

std::atomic<int> detail::captures{0};

namespace capture_impl {
namespace {

struct Capture {
  c10::Stream stream;
  uint64_t id;
  int32_t mode;
  std::thread::id thread;
};

struct Captures {
  std::mutex mutex;
  std::vector<Capture> all;
};

Captures& captures() {
  static auto* instance = new Captures();
  return *instance;
}

void forget(const c10::Stream& stream) {
  auto& known = captures();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto gone = std::erase_if(known.all, [&](const Capture& one) { return one.stream == stream; });
  detail::captures.fetch_sub(static_cast<int>(gone), std::memory_order_relaxed);
}

// The capture mode that forbids this thread to wait; 0: none does.
int32_t forbidding_mode() {
  auto& known = captures();
  const std::lock_guard<std::mutex> lock(known.mutex);
  int32_t found = 0;
  for (const Capture& one : known.all) {
    if (one.mode == BP_CAPTURE_GLOBAL || (one.mode == BP_CAPTURE_THREAD && one.thread == std::this_thread::get_id())) found = one.mode;
  }
  return found;
}

}  // namespace
}  // namespace capture_impl

uint64_t capture_id(const c10::Stream& stream) noexcept {
  if (!anything_captures()) return 0;
  try {
    int32_t status = BP_CAPTURE_NONE;
    uint64_t id = 0;
    if (try_call<&bp_graph::capture_status>(stream.device_index(), stream_handle(stream), &status, &id) != BP_OK) return 0;
    return status == BP_CAPTURE_NONE ? 0 : id;
  } catch (...) {
    return 0;
  }
}

bool is_capturing(const c10::Stream& stream) {
  stream_handle(stream);
  const auto vendors = overrides().is_capturing.get();
  return (vendors != nullptr && vendors(stream)) || capture_id(stream) != 0;
}

bool is_capturing(c10::DeviceIndex device) { return is_capturing(current_stream(device)); }

bool device_captures(c10::DeviceIndex device) {
  if (!anything_captures()) return false;
  auto& known = capture_impl::captures();
  const std::lock_guard<std::mutex> lock(known.mutex);
  return std::any_of(known.all.begin(), known.all.end(), [&](const auto& one) { return one.stream.device_index() == device; });
}

bool is_active_capture(uint64_t id) {
  auto& known = capture_impl::captures();
  const std::lock_guard<std::mutex> lock(known.mutex);
  return std::any_of(known.all.begin(), known.all.end(), [&](const auto& one) { return one.id == id; });
}

void refuse_in_capture(const c10::Stream& stream, const char* what, const char* about) {
  if (C10_LIKELY(!anything_captures() && overrides().is_capturing.get() == nullptr)) return;
  TORCH_CHECK(!is_capturing(stream), what, about, " cannot be recorded: stream ", stream.id(), " of ", device_name(), ":",
              static_cast<int>(stream.device_index()), " is capturing a graph. Do it before the capture begins or after it has ended");
  const int32_t mode = capture_impl::forbidding_mode();
  TORCH_CHECK(mode == 0, what, about, " waits for ", device_name(), ", and ", mode == BP_CAPTURE_GLOBAL ? "a thread" : "this thread",
              " is capturing a graph with capture_error_mode=", mode == BP_CAPTURE_GLOBAL ? "'global'" : "'thread_local'",
              ", which allows ", mode == BP_CAPTURE_GLOBAL ? "no thread" : "this thread no",
              " waits. Do it before the capture begins or after it has ended, or capture with 'relaxed'");
}

uint64_t begin_capture(const c10::Stream& stream, int32_t mode) {
  uint64_t id = 0;
  call<&bp_graph::capture_begin>(stream.device_index(), stream_handle(stream), mode, &id);
  auto& known = capture_impl::captures();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.all.push_back({stream, id, mode, std::this_thread::get_id()});
  detail::captures.fetch_add(1, std::memory_order_relaxed);
  return id;
}

bp_recording* end_capture(const c10::Stream& stream) {
  bp_recording* recording = nullptr;
  const int32_t status = try_call<&bp_graph::capture_end>(stream.device_index(), stream_handle(stream), &recording);
  const std::string text = status == BP_OK ? "" : last_error_text();
  capture_impl::forget(stream);
  TORCH_CHECK(status != BP_INVALID_ARGUMENT, "The capture on stream ", stream.id(), " of ", stream.device(), " is invalid: ", text);
  if (status != BP_OK) throw_status(status, "bp.graph.capture_end", stream.device_index(), text);
  return recording;
}

}  // namespace backplane
