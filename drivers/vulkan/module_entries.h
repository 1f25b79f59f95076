// drivers/vulkan/module_entries.h: the entries of bp.module.
#pragma once

#include "instance.h"

namespace backplane::driver::vulkan {

class ModuleEntries : public LoadedModules<Instance, Module> {
 public:
  explicit ModuleEntries(Instance& instance) : LoadedModules(instance, "vk") {}

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
};

}  // namespace backplane::driver::vulkan
