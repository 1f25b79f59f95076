// drivers/vulkan/instance.h: what the entries of every group share: the devices, and what an instance owns of Vulkan from the first entry
// that names a device until close.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <backplane/driver/cxx/captures.hpp>
#include <backplane/driver/cxx/event_profile.hpp>
#include <backplane/driver/cxx/live.hpp>

#include "compiler.h"
#include "device.h"
#include "memory.h"
#include "module.h"
#include "survey.h"

namespace backplane::driver::vulkan {

/// A record of a stream's work so far; what a bp_event is here.
struct Record {
  const uint32_t flags;
  std::mutex mutex{};
  bool recorded = false;
  Point latest{};
  std::shared_ptr<Stamp> stamp{};  // with BP_EVENT_TIMING
  EventPoint point{};

  explicit Record(uint32_t given) : flags(given) {}
  Point get() {
    std::lock_guard lock(mutex);
    return latest;
  }
};

/// Ended in the reverse order.
struct Runtime {
  Session session;
  std::vector<std::unique_ptr<Device>> devices;
  Pinned pinned;
  Memory memory{pinned};
  SharedHandles<Module> modules;
  LiveHandles<Record*> records{[](Record* record) { delete record; }};

  Runtime(const Survey& survey, const Settings& settings) : session(settings.library), pinned(page(survey)) {
    for (const DeviceInfo& info : survey.devices) {
      devices.push_back(std::make_unique<Device>(session, static_cast<int32_t>(devices.size()), info, settings));
    }
  }
  ~Runtime() {
    for (const auto& device : devices) device->finish_streams();  // of all, before any ends: they wait for each other
    for (const auto& device : devices) device->end_streams();
    pinned.forget_devices();
  }

 private:
  static uint64_t page(const Survey& survey) {
    uint64_t bytes = 4096;
    for (const DeviceInfo& info : survey.devices) bytes = std::max(bytes, info.import_alignment);
    return bytes;
  }
};

/// What gives something back works on a device that failed, and is OK on one that is gone.
template <class Body>
int32_t released(Device& device, Body&& body) {
  if (device.sticky() != BP_DEVICE_LOST) {
    body();
    return BP_OK;
  }
  try {
    body();
  } catch (const Error&) {  // the driver may refuse every call for it
  }
  return BP_OK;
}

/// Work that was not queued.
struct Recorded {
  std::string label;
  bp_activity what;  // for the record of a profile
  Work work;         // repeatable
};

class Instance {
 public:
  /// table: the driver's own.
  Instance(const char* options, const bp_driver* table)
      : settings(options), survey(take_survey(settings)), compiler(survey, settings), profile(TableCalls{table}) {}

  int32_t count() const { return static_cast<int32_t>(survey.devices.size()); }
  const DeviceInfo& info_of(int32_t device) const {
    if (device < 0 || device >= count()) throw Error(BP_INVALID_DEVICE, format("no device %d; there are %d", device, count()));
    return survey.devices[static_cast<size_t>(device)];
  }
  Runtime& runtime_of(int32_t device) {
    info_of(device);
    std::call_once(once_, [&] {
      runtime_ = std::make_unique<Runtime>(survey, settings);
      made_ = true;
    });
    return *runtime_;
  }
  /// When an entry has named a device; else the second one is NULL.
  Runtime& runtime() { return *runtime_; }
  Runtime* runtime_if_any() { return made_ ? runtime_.get() : nullptr; }
  Device& at(int32_t device) { return *runtime_of(device).devices[static_cast<size_t>(device)]; }

  /// False if the stream does not capture. Else it has what `recorded()` gives.
  template <class Make>
  bool captured(bp_stream* stream, Make&& recorded) {
    return captures.any() && captures.status(stream) != BP_CAPTURE_NONE && captures.add(stream, recorded());
  }

  const Settings settings;
  const Survey survey;
  Compiler compiler;
  EventProfile<> profile;
  Captures<Recorded> captures;  // streams are known by their handles, devices by their Device

 private:
  std::once_flag once_;
  std::atomic<bool> made_{false};
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace backplane::driver::vulkan
