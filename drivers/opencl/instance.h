// drivers/opencl/instance.h: what the entries of every group share: the devices, and what an instance owns of the runtime from the first
// entry that names a device until close.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../engine/surveyed.h"
#include "compiler.h"
#include "memory.h"
#include "module.h"
#include "runtime.h"
#include "survey.h"

namespace backplane::driver::opencl {

/// A record of a stream's work so far; what a bp_event is here.
struct Record {
  const uint32_t flags;
  std::mutex mutex;
  Event latest;  // empty: never recorded
  EventPoint point;

  explicit Record(uint32_t given) : flags(given) {}
  Event get() {
    std::lock_guard lock(mutex);
    return latest;
  }
};

/// Ended in the reverse order.
struct Runtime {
  Context context;
  std::unique_ptr<Memory> memory;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Pinned> pinned;
  SharedHandles<Module> modules;
  LiveHandles<Record*> records{[](Record* record) { delete record; }};

  Runtime(const Survey& survey, const Settings& settings)
      : context(open_library(survey.library), survey.devices), memory(make_memory(context, survey.devices[0].memory_kind)) {
    for (const DeviceInfo& info : survey.devices) {
      devices.push_back(std::make_unique<Device>(context, static_cast<int32_t>(devices.size()), info, settings.throttle));
    }
    pinned = std::make_unique<Pinned>(*devices[0]);
  }
  ~Runtime() {
    for (const auto& device : devices) device->finish();  // before what its work uses goes
  }
};

/// A command that was not queued. `queue` queues it, any number of times.
struct Recorded {
  std::string label;
  bp_activity what;  // for the record of a profile
  std::function<void(Queue& on)> queue;
};

using Instance = SurveyedInstance<Settings, Survey, Compiler, Runtime, Recorded>;

}  // namespace backplane::driver::opencl
