// drivers/opencl/instance.h: what an instance owns of the runtime, from the first entry that names a device until close.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <backplane/driver/cxx/captures.hpp>
#include <backplane/driver/cxx/live.hpp>

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
  LiveHandles<Module*> modules{[](Module* module) { delete module; }};
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

}  // namespace backplane::driver::opencl
