// runtime/watchdog.cpp: the latest work of every stream, by the operator that queued it.
#include "runtime/watchdog.h"

#include <backplane/kernel.h>
#include <c10/util/Exception.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "runtime/activity.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"

namespace backplane {
namespace watch_impl {
namespace {

using Clock = std::chrono::steady_clock;

thread_local std::string t_awaited;

struct Latest {
  std::string work;
  Clock::time_point when;
};

struct Streams {
  std::mutex mutex;  // protects the map; never held during a driver call
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Latest> latest;
};

Streams& streams() {
  static auto* instance = new Streams();
  return *instance;
}

std::string describe(const char* what, uint64_t bytes) {
  std::string text = what;
  if (bytes != 0) text += " of " + std::to_string(bytes) + " bytes";
  const auto& operators = running_operators();
  return text + (operators.empty() ? " queued outside any operator" : " queued by " + operators.back().name);
}

std::string stream_name(c10::DeviceIndex device, c10::StreamId id) {
  return (id == 0 ? std::string("the default stream") : "stream " + std::to_string(id)) + " of " + device_name() + ":" +
         std::to_string(device);
}

// Keeps the work; with LAUNCH_BLOCKING waits for it.
void follow(const Activity& activity) {
  if (activity.kind != ActivityKind::queued || activity.object != 0) return;  // recorded work does not run
  std::string work = describe(activity.name, activity.size);
  {
    auto& all = streams();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.latest[{activity.device, activity.stream}] = {work, Clock::now()};
  }
  if (!launch_blocking()) return;
  struct Awaited {
    explicit Awaited(std::string text) { t_awaited = std::move(text); }
    ~Awaited() { t_awaited.clear(); }
  } awaited(std::move(work) + " on " + stream_name(activity.device, activity.stream));
  synchronize_stream(c10::Stream(c10::Stream::UNSAFE, {kDevice, activity.device}, activity.stream));
}

[[maybe_unused]] const bool following = [] {
  if (watching()) subscribe(follow);
  return true;
}();

}  // namespace
}  // namespace watch_impl

bool watching() {
  static const bool asked = env("WATCHDOG_SECONDS") || launch_blocking();
  return asked;
}

uint64_t watchdog_ns() {
  static const uint64_t limit = []() -> uint64_t {
    const auto text = env("WATCHDOG_SECONDS");
    if (!text) return UINT64_MAX;
    double seconds = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    TORCH_CHECK_VALUE(error == std::errc() && end == text->data() + text->size() && seconds > 0 && seconds < 1e9,
                      BACKPLANE_ENV_PREFIX "_WATCHDOG_SECONDS is '", *text,
                      "': expected a number of seconds greater than 0, such as 60 or 0.5.");
    return static_cast<uint64_t>(seconds * 1e9);
  }();
  return limit;
}

std::string awaited_work() { return watch_impl::t_awaited; }

std::string interrupted_work() {
  std::string text;
  if (const char* name = detail::queued_last.load(std::memory_order_relaxed)) text = std::string("; queued last was ") + name;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    if (has_context(device)) text += pending_work(device);
  }
  return text;
}

std::string pending_work(c10::DeviceIndex device) {
  using namespace watch_impl;
  if (!watching()) return "";
  auto& all = streams();
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Latest> latest;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    latest = all.latest;
  }
  std::string text;
  for (const auto& [key, work] : latest) {
    if (key.first != device) continue;
    const c10::Stream stream(c10::Stream::UNSAFE, {kDevice, device}, key.second);
    if (try_call<&bp_driver::stream_query>(device, stream_handle(stream)) != BP_PENDING) continue;
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - work.when).count();
    text += "\n  " + stream_name(key.first, key.second) + ": the latest work is a " + work.work + ", " + std::to_string(age) + " ms ago";
  }
  return text;
}

}  // namespace backplane
