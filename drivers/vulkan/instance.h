// drivers/vulkan/instance.h: what the entries of every group share: the devices, and what an instance owns of Vulkan from the first entry
// that names a device until close.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../engine/surveyed.h"
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

/// Work that was not queued.
struct Recorded {
  std::string label;
  bp_activity what;  // for the record of a profile
  Work work;         // repeatable
};

using Instance = SurveyedInstance<Settings, Survey, Compiler, Runtime, Recorded>;

}  // namespace backplane::driver::vulkan
