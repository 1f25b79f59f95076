// drivers/engine/surveyed.h: what the entries of every group share, of a driver that takes a survey of its devices in a child process
// (in_child.h) and opens its runtime when an entry first names a device.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <backplane/driver/cxx/captures.hpp>
#include <backplane/driver/cxx/code.hpp>
#include <backplane/driver/cxx/event_profile.hpp>
#include <backplane/driver/cxx/kernels.hpp>
#include <backplane/driver/cxx/live.hpp>

namespace backplane::driver {

/// Recorded: work that was not queued. The driver has take_survey(settings); Runtime{survey, settings} has `devices`, by their numbers.
template <class Settings, class Survey, class Compiler, class Runtime, class Recorded>
class SurveyedInstance {
 public:
  /// table: the driver's own.
  SurveyedInstance(const char* options, const bp_driver* table)
      : settings(options), survey(take_survey(settings)), compiler(survey, settings), profile(TableCalls{table}) {}

  int32_t count() const { return static_cast<int32_t>(survey.devices.size()); }
  const auto& info_of(int32_t device) const {
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
  auto& at(int32_t device) { return *runtime_of(device).devices[static_cast<size_t>(device)]; }

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

/// What gives something back works on a device that failed, and is OK on one that is gone.
template <class Device, class Body>
int32_t released(Device& device, Body&& body) {
  if (device.sticky() != BP_DEVICE_LOST) {
    body();
    return BP_OK;
  }
  try {
    body();
  } catch (const Error&) {  // the runtime may refuse every call for it
  }
  return BP_OK;
}

/// bp.compiler's targets(): that of each device, once.
template <class Survey, class Target>
std::vector<bp_target_properties> targets_of(const Survey& survey, Target&& target) {
  std::vector<bp_target_properties> out;
  for (const auto& info : survey.devices) {
    const auto same = [&](const bp_target_properties& other) { return std::strcmp(other.target, info.target) == 0; };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(target(info));
  }
  return out;
}

/// The entries of bp.module but launch. `driver`: that of pack_code.
template <class Instance, class Module>
class LoadedModules {
 public:
  LoadedModules(Instance& instance, const char* driver) : instance_(instance), driver_(driver) {}

  void load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    auto& on = instance_.at(device);
    need(code && out, "module.load: code and out");
    on.check();
    const Code found = unpack_code(driver_, {static_cast<const char*>(code), bytes}, checksum(instance_.compiler.id()));
    found.need_target(on.info().target);
    modules(device).add(std::make_shared<Module>(on, found.image), out);
  }
  int32_t unload(int32_t device, bp_module_code* module) {
    return released(instance_.at(device), [&] { modules(device).take(module, device, "module.unload: no module of this device"); });
  }
  void function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                bp_function_properties* properties) {
    const auto from = modules(device).find(module, device, "module.function: no module of this device");
    need(out, "module.function: out");
    need_signature(name, signature, instance_.compiler.target(device).parameter_bytes);
    auto& kernel = from->kernel(name, *signature);
    if (properties) hand_out(properties, kernel.properties(), "module.function: properties");
    *out = reinterpret_cast<bp_function*>(&kernel);
  }

 protected:
  SharedHandles<Module>& modules(int32_t device) { return instance_.runtime_of(device).modules; }

  Instance& instance_;

 private:
  const char* const driver_;
};

}  // namespace backplane::driver
