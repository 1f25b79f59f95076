// drivers/sim/module_entries.h: the entries of bp.module, and a launch as work of a stream.
#pragma once

#include <cstring>
#include <memory>

#include <backplane/driver/module.h>

#include "compiler.h"
#include "devices.h"
#include "module.h"

namespace backplane::driver::sim {

class ModuleEntries {
 public:
  ModuleEntries(Devices& devices, const Compiler& compiler) : devices_(devices), compiler_(compiler) {}

  void load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    devices_.at(device).check();
    need(code && out, "module.load: code and out");
    const Settings& settings = devices_.settings;
    const Code found = unpack_code("simk", {static_cast<const char*>(code), bytes}, compiler_.prelude_sum());
    found.need_target(settings.target->name);
    modules_.add(std::make_shared<Module>(device, found.image, settings.items, settings.order), out);
  }
  void unload(int32_t device, bp_module_code* module) {
    devices_.check_index(device);
    modules_.take(module, device, "module.unload: no module of this device");
  }
  void function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                bp_function_properties* properties) {
    devices_.at(device).check();
    need(out, "module.function: out");
    need_signature(name, signature, kParameterBytes);
    Kernel& kernel = modules_.find(module, device, "module.function: no module of this device")->kernel(name, *signature);
    if (properties) hand_out(properties, {0, kernel.group(), 0, 0, 0}, "module.function: properties");
    *out = reinterpret_cast<bp_function*>(&kernel);
  }
  void launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    Stream& on = devices_.usable(device, stream);
    need_launch(launch);
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(launch->function);
    kernel.limits.check(device, *launch);
    std::unique_ptr<uint64_t[]> args(new uint64_t[launch->args_bytes / 8]);  // not zeroed
    std::memcpy(args.get(), launch->args, launch->args_bytes);
    devices_.pause(on, devices_.delay());
    const Job job{run_kernel,
                  {reinterpret_cast<uint64_t>(this), reinterpret_cast<uint64_t>(&kernel), reinterpret_cast<uint64_t>(args.get()),
                   launch->grid[0], launch->grid[1], launch->grid[2]}};
    devices_.queue_job(on, {BP_ACTIVITY_KERNEL, 0, 0, 0, kernel.name()}, job, repeat_kernel, destroy_kernel_args);
    static_cast<void>(args.release());  // the job's, which may be over by now
  }

 private:
  static void run_kernel(Job& job, int32_t status) {
    const std::unique_ptr<uint64_t[]> args(reinterpret_cast<uint64_t*>(job.words[2]));
    run_with(args.get(), job, status);
  }
  static void repeat_kernel(Job& job, int32_t status) {
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(job.words[1]);
    uint64_t args[kParameterBytes / sizeof(uint64_t)];
    std::memcpy(args, reinterpret_cast<const void*>(job.words[2]), kernel.limits.args_bytes);
    run_with(args, job, status);
  }
  static void destroy_kernel_args(Job& job) { delete[] reinterpret_cast<uint64_t*>(job.words[2]); }

  static void run_with(uint64_t* args, const Job& job, int32_t status) {
    if (status != BP_OK) return;
    ModuleEntries& self = *reinterpret_cast<ModuleEntries*>(job.words[0]);
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(job.words[1]);
    for (uint32_t i = 0; i < kernel.pointers(); ++i) args[i] = self.reach_argument(kernel.device(), args[i], i);
    const uint32_t grid[3] = {static_cast<uint32_t>(job.words[3]), static_cast<uint32_t>(job.words[4]),
                              static_cast<uint32_t>(job.words[5])};
    kernel.run(args, grid);
  }

  /// Where a kernel's pointer points to. Nothing is read through 0, and the end of an allocation is one, too: of an empty part of it.
  uint64_t reach_argument(int32_t device, uint64_t address, uint32_t index) {
    if (address == 0) return 0;
    if (void* at = devices_.reach(device, address)) return reinterpret_cast<uint64_t>(at);
    if (void* last = devices_.reach(device, address - 1)) return reinterpret_cast<uint64_t>(last) + 1;
    throw Error(BP_FAULT,
                format("pointer %u of a kernel, 0x%llx, is not in an allocation of device %d, nor of a peer that it has access to", index,
                       wide(address), device));
  }

  Devices& devices_;
  const Compiler& compiler_;
  SharedHandles<Module> modules_;
};

}  // namespace backplane::driver::sim
