// drivers/vulkan/module_entries.h: the entries of bp.module.
#pragma once

#include "instance.h"

namespace backplane::driver::vulkan {

class ModuleEntries {
 public:
  explicit ModuleEntries(Instance& instance) : instance_(instance) {}

  void load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    Device& on = instance_.at(device);
    need(code && out, "module.load: code and out");
    on.check();
    const Code found = unpack_code("vk", {static_cast<const char*>(code), bytes}, checksum(instance_.compiler.id()));
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
    const Kernel& kernel = from->kernel(name, *signature);
    if (properties) hand_out(properties, kernel.properties(), "module.function: properties");
    *out = reinterpret_cast<bp_function*>(const_cast<Kernel*>(&kernel));
  }
  void launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    Device& on = instance_.at(device);
    const auto queue = on.stream(stream);
    on.check();
    need_launch(launch);
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(launch->function);
    kernel.limits().check(device, *launch);
    const bp_activity what = EventProfile<>::work(BP_ACTIVITY_KERNEL, device);
    if (instance_.captured(stream, [&]() -> Recorded { return {kernel.name(), what, {kernel.recorded(*launch), {}}}; })) return;
    instance_.profile.around(
        what, stream, [&] { queue->submit([&](Commands& commands) { kernel.record(commands, launch->grid, launch->args); }); },
        kernel.name().c_str());
  }

 private:
  SharedHandles<Module>& modules(int32_t device) { return instance_.runtime_of(device).modules; }

  Instance& instance_;
};

}  // namespace backplane::driver::vulkan
