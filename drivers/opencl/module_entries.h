// drivers/opencl/module_entries.h: the entries of bp.module.
#pragma once

#include "instance.h"

namespace backplane::driver::opencl {

class ModuleEntries : public LoadedModules<Instance, Module> {
 public:
  explicit ModuleEntries(Instance& instance) : LoadedModules(instance, "ocl") {}

  void launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    Runtime& runtime = instance_.runtime_of(device);
    const auto queue = instance_.at(device).stream(stream);
    queue->device().check();
    need_launch(launch);
    Kernel& kernel = *reinterpret_cast<Kernel*>(launch->function);
    kernel.limits().check(device, *launch);
    const bp_activity what = EventProfile<>::work(BP_ACTIVITY_KERNEL, device);
    const auto recorded = [&]() -> Recorded { return {kernel.name(), what, kernel.recorded(*runtime.memory, *launch)}; };
    if (instance_.captured(stream, recorded)) return;
    instance_.profile.around(what, stream, [&] { kernel.launch(*queue, *runtime.memory, *launch); }, kernel.name().c_str());
  }
};

}  // namespace backplane::driver::opencl
