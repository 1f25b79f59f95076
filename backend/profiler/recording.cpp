// profiler/recording.cpp: starts and stops the driver's recording, and reports vendors' launches to it, which the core's activity channel
// announces.
#include "profiler/recording.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "runtime/activity.h"
#include "runtime/capture.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane {
namespace recording_impl {
namespace {

std::atomic<uint64_t> all_records{0};
std::atomic<const bp_profile*> recording{nullptr};  // the group while it is on
std::atomic<bool> wait_failed{false};               // a wait for the devices has failed already
std::mutex switching;

// Guarded by that lock.
std::string& refusal() {
  static auto* instance = new std::string();
  return *instance;
}

// Called on the driver's threads.
struct Taken {
  std::mutex mutex;
  std::vector<ActivityRecord> records;
};
Taken& taken() {
  static auto* instance = new Taken();
  return *instance;
}

void take(void*, const bp_activity* const* records, uint64_t count) {
  auto& all = taken();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (uint64_t i = 0; i < count; ++i) {
    ActivityRecord record{};
    std::memcpy(static_cast<void*>(&record.activity), records[i], std::min<uint64_t>(records[i]->struct_size, sizeof(bp_activity)));
    if (const char* name = std::exchange(record.activity.name, nullptr)) record.name = name;
    all.records.push_back(std::move(record));
  }
  all_records.fetch_add(count, std::memory_order_relaxed);
}

std::atomic<uint64_t> recordings{0};  // begun so far

// Vendors' launches that are open on the calling thread; only the outermost is reported. A recording may end within one, whose begin the
// next recording has not seen.
struct Launches {
  uint64_t recording = 0;
  int open = 0;
};
thread_local Launches launches;

void follow_launches(const Activity& activity) {
  const bool begins = activity.kind == ActivityKind::launch;
  const bool fails = activity.kind == ActivityKind::launch_failed;
  constexpr std::string_view kernel = "kernel ";  // NativeLaunch's prefix of the name
  const bool ends = activity.kind == ActivityKind::queued && std::string_view(activity.name).substr(0, kernel.size()) == kernel;
  if (!begins && !fails && !ends) return;
  const uint64_t number = recordings.load(std::memory_order_relaxed);
  if (launches.recording != number) launches = {number, 0};
  if (!begins && launches.open == 0) return;  // it began before the recording
  const int depth = begins ? launches.open++ : --launches.open;
  if (depth != 0) return;
  bp_stream* const stream = stream_handle(c10::Stream(c10::Stream::UNSAFE, {kDevice, activity.device}, activity.stream));
  if (begins) {
    call_noexcept<&bp_profile::launch_begin>(activity.device, stream);
  } else {
    call_noexcept<&bp_profile::launch_end>(activity.device, stream, fails ? nullptr : activity.name + kernel.size());
  }
}

std::chrono::nanoseconds timeout() {
  static const std::chrono::nanoseconds limit = [] {
    double seconds = 60;
    if (const auto text = env("PROFILE_SECONDS")) {
      const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
      TORCH_CHECK_VALUE(error == std::errc() && end == text->data() + text->size() && seconds >= 0 && seconds < 1e9,
                        BACKPLANE_ENV_PREFIX "_PROFILE_SECONDS is '", *text, "': expected a number of seconds, such as 60 or 0.5.");
    }
    return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }();
  return limit;
}

// Converts the driver's device numbers to PyTorch's; -1 for a device that is not visible, whose records are dropped.
void number_devices(std::vector<ActivityRecord>& records) {
  std::vector<int32_t> numbers;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) numbers.push_back(driver_index(device));
  const auto visible = [&](int32_t& number) {
    if (number == BP_HOST_DEVICE) return;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] == number) {
        number = static_cast<int32_t>(i);
        return;
      }
    }
    number = -1;
  };
  for (ActivityRecord& record : records) {
    visible(record.activity.device);
    visible(record.activity.src_device);
    visible(record.activity.dst_device);
  }
}

const bp_profile* with_ranges() noexcept {
  const Driver* driver = driver_if_open();
  return driver != nullptr && driver->profile != nullptr && (driver->profile->head.flags & BP_PROFILE_RANGES) ? driver->profile : nullptr;
}

void expect_ok(int32_t status, const char* call) {
  if (status != BP_OK) throw_status(status, call, -1, last_error_text());
}

}  // namespace
}  // namespace recording_impl

using namespace recording_impl;

bool start_recording() noexcept {
  const std::lock_guard<std::mutex> lock(switching);
  const auto refuse = [](const std::string& why, const char* hint = "") {
    refusal() = why + ". The profile has no times of the device" + hint;
    return false;
  };
  if (is_recording()) return refuse("A recording of " + std::string(device_name()) + " is already active");
  try {
    timeout();  // raises for an invalid setting now
    const bp_profile* group = open_driver().profile;
    if (group == nullptr) {
      return refuse("The driver of " + std::string(device_name()) + " has no bp.profile",
                    ". With " BACKPLANE_ENV_PREFIX "_SHIMS=emulate in the environment the shim emulate derives them from timing events");
    }
    {
      auto& all = taken();
      const std::lock_guard<std::mutex> clearing(all.mutex);
      all.records.clear();
    }
    wait_failed = false;
    const int32_t status = group->start(group->head.self, (uint64_t{1} << BP_ACTIVITY_COUNT) - 1, take, nullptr);
    if (status != BP_OK) return refuse(status_message(status, "bp.profile.start", -1, last_error_text()));
    ++recordings;
    if ((group->head.flags & BP_PROFILE_NATIVE) == 0) subscribe(follow_launches);
    recording.store(group, std::memory_order_release);
    return true;
  } catch (const c10::Error& error) {  // no driver, or a forked child
    return refuse(error.what_without_backtrace());
  }
}

std::string take_refusal() {
  const std::lock_guard<std::mutex> lock(switching);
  return std::exchange(refusal(), {});
}

bool is_recording() noexcept { return recording.load(std::memory_order_acquire) != nullptr; }

std::string wait_for_recorded() {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + timeout();
  std::string why;
  if (anything_captures()) why = std::string(device_name()) + " captures a graph, and a wait would invalidate that";
  for (c10::DeviceIndex device = 0; why.empty() && device < device_count(); ++device) {
    if (!has_context(device)) continue;
    const int32_t status = interruptible_wait([&](uint64_t timeout_ns) -> int32_t {
      const auto left = std::max(end - Clock::now(), Clock::duration::zero());
      const int32_t waited = try_call<&bp_driver::synchronize>(device, std::min(timeout_ns, static_cast<uint64_t>(left.count())));
      return waited == BP_TIMEOUT && Clock::now() >= end ? int32_t{BP_PENDING} : waited;
    });
    if (status == BP_OK) continue;
    why = std::string(device_name()) + " is in error, or has work that was not complete after " BACKPLANE_ENV_PREFIX
                                       "_PROFILE_SECONDS (60 s)";
  }
  wait_failed = !why.empty();
  return why;
}

Recorded stop_recording() noexcept {
  const std::lock_guard<std::mutex> lock(switching);
  const bp_profile* group = recording.load();
  if (group == nullptr) return {};
  Recorded result;
  try {
    if (!wait_failed) wait_for_recorded();
  } catch (const std::exception&) {  // a signal: the records of completed work exist anyway
  }
  recording.store(nullptr);
  unsubscribe(follow_launches);
  if (driver_if_open() == nullptr) return {};  // closed, or a forked child
  const int32_t status = group->stop(group->head.self, &result.dropped);
  if (status != BP_OK) log_status(status, "bp.profile.stop", -1, last_error_text());
  auto& all = taken();
  {
    const std::lock_guard<std::mutex> taking(all.mutex);
    result.records = std::exchange(all.records, {});
  }
  number_devices(result.records);
  return result;
}

void tag_work(uint64_t correlation) noexcept {
  if (const bp_profile* group = recording.load(std::memory_order_acquire)) group->tag(group->head.self, correlation);
}

uint64_t activity_records() noexcept { return all_records.load(std::memory_order_relaxed); }

void push_vendor_range(const std::string& name) {
  if (const bp_profile* group = with_ranges()) expect_ok(group->range_push(group->head.self, name.c_str()), "bp.profile.range_push");
}
void pop_vendor_range() {
  if (const bp_profile* group = with_ranges()) expect_ok(group->range_pop(group->head.self), "bp.profile.range_pop");
}
void mark_for_vendor(const std::string& name) {
  if (const bp_profile* group = with_ranges()) expect_ok(group->mark(group->head.self, name.c_str()), "bp.profile.mark");
}

}  // namespace backplane
