// drivers/sim/module_entries.h: the entries of bp.module, and a launch as work of a stream.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <backplane/driver/module.h>

#include "code.h"
#include "compiler_entries.h"
#include "module.h"

namespace backplane::driver::sim {

class ModuleEntries : public CompilerEntries {
 public:
  explicit ModuleEntries(const Host& host) : Devices(host), CompilerEntries(host) {}

  void module_load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    at(device).check();
    need(code && out, "module.load: code and out");
    const std::string_view object = object_of({static_cast<const char*>(code), bytes}, settings_.target->name, compiler_.prelude_sum());
    auto module = std::make_unique<Module>(device, object, settings_.items, settings_.order);
    std::lock_guard lock(modules_mutex_);
    modules_.push_back(std::move(module));
    *out = reinterpret_cast<bp_module_code*>(modules_.back().get());
  }
  void module_unload(int32_t device, bp_module_code* module) {
    check_index(device);
    std::unique_ptr<Module> last;
    std::lock_guard lock(modules_mutex_);
    const auto found = find_module(device, module, "module.unload");
    last = std::move(*found);
    modules_.erase(found);
  }
  void module_function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                       bp_function_properties* properties) {
    at(device).check();
    need(module && name && signature && out, "module.function: module, name, signature and out");
    if (signature->struct_size < sizeof(bp_signature)) {
      throw Error(BP_INVALID_ARGUMENT, "module.function: the signature's struct_size is too small");
    }
    Module* found = nullptr;
    {
      std::lock_guard lock(modules_mutex_);
      found = find_module(device, module, "module.function")->get();
    }
    Kernel& kernel = found->kernel(name, *signature);
    if (properties) hand_out(properties, {0, kernel.group(), 0, 0, 0}, "module.function: properties");
    *out = reinterpret_cast<bp_function*>(&kernel);
  }
  void module_launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    Stream& on = usable(device, stream);
    need(launch && launch->function, "module.launch: launch and its function");
    if (launch->struct_size < sizeof(bp_launch)) throw Error(BP_INVALID_ARGUMENT, "module.launch: the launch's struct_size is too small");
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(launch->function);
    if (kernel.device() != device) {
      throw Error(BP_INVALID_ARGUMENT,
                  format("module.launch: the function is of device %d, the call names device %d", kernel.device(), device));
    }
    kernel.check(*launch, settings_.items);
    std::unique_ptr<uint64_t[]> args(new uint64_t[launch->args_bytes / 8]);  // not zeroed
    std::memcpy(args.get(), launch->args, launch->args_bytes);
    pause(on, delay());
    const Job job{run_kernel,
                  {reinterpret_cast<uint64_t>(this), reinterpret_cast<uint64_t>(&kernel), reinterpret_cast<uint64_t>(args.get()),
                   launch->grid[0], launch->grid[1], launch->grid[2]}};
    queue_job(on, {BP_ACTIVITY_KERNEL, 0, 0, 0, kernel.name()}, job, repeat_kernel, destroy_kernel_args);
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
    std::memcpy(args, reinterpret_cast<const void*>(job.words[2]), kernel.args_bytes());
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
    if (void* at = reach(device, address)) return reinterpret_cast<uint64_t>(at);
    if (void* last = reach(device, address - 1)) return reinterpret_cast<uint64_t>(last) + 1;
    throw Error(BP_FAULT,
                format("pointer %u of a kernel, 0x%llx, is not in an allocation of device %d, nor of a peer that it has access to", index,
                       static_cast<unsigned long long>(address), device));
  }

  /// With the lock held. Throws.
  std::vector<std::unique_ptr<Module>>::iterator find_module(int32_t device, const bp_module_code* module, const char* call) {
    const auto is_it = [&](const auto& one) {
      return reinterpret_cast<const bp_module_code*>(one.get()) == module && one->device() == device;
    };
    const auto found = std::find_if(modules_.begin(), modules_.end(), is_it);
    if (found == modules_.end()) throw Error(BP_INVALID_ARGUMENT, format("%s: no module of device %d", call, device));
    return found;
  }

  std::mutex modules_mutex_;
  std::vector<std::unique_ptr<Module>> modules_;
};

}  // namespace backplane::driver::sim
