// drivers/shims/emulate/kernels.h: host functions, kernels of modules and graphs: as work of the shim's own streams, or in a record of it.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>

#include "below.h"
#include "modules.h"

namespace backplane::driver::emulate {

class KernelEntries : public virtual Below {
 public:
  using Below::Below;

  void exec_enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    if (!own_streams_) {
      return events_.around(Records::work(BP_ACTIVITY_KERNEL, device), stream,
                            [&] { inner_.group(exec_below_->head, exec_below_->enqueue, device, stream, fn, arg, destroy); });
    }
    try {
      if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
      Stream& on = usable(device, stream);
      on.submit({[](Job& job, int32_t status) {
                   const auto& [self, on, call, with, end, unused] = job.words;
                   reinterpret_cast<KernelEntries*>(self)->run_host_function(
                       static_cast<int32_t>(on), status, reinterpret_cast<int32_t (*)(void*)>(call), reinterpret_cast<void*>(with),
                       reinterpret_cast<void (*)(void*)>(end));
                 },
                 {reinterpret_cast<uint64_t>(this), static_cast<uint64_t>(device), reinterpret_cast<uint64_t>(fn),
                  reinterpret_cast<uint64_t>(arg), reinterpret_cast<uint64_t>(destroy)}},
                recorder_.queue(BP_ACTIVITY_KERNEL, device, stream));
    } catch (...) {
      if (destroy) destroy(arg);
      throw;
    }
  }

  void exec_map(int32_t device, uint64_t address, void** out) {
    if (exec_below_) {
      inner_.group(exec_below_->head, exec_below_->map, device, address, out);
      return;
    }
    // The view is coherent and at the same address, so it need not stay open; asking for it checks the address.
    void* seen = nullptr;
    pass<&bp_host_view::map, bp_host_view>(device, address, uint64_t{1}, int32_t{BP_ACCESS_READ_WRITE}, &seen);
    pass<&bp_host_view::unmap, bp_host_view>(device, address, seen);
    *out = seen;
  }

  // bp.module where the streams are the shim's: its functions know what a launch of them may say, since what the driver below refuses when
  // the job runs would be a fault of the device.

  void module_unload(int32_t device, bp_module_code* module) {
    pass<&bp_module::unload, bp_module>(device, module);
    functions_.forget(module);
  }

  void module_function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                       bp_function_properties* properties) {
    if (!out || !signature || signature->struct_size < sizeof *signature) {
      throw Error(BP_INVALID_ARGUMENT, "module.function: out and a signature of full struct_size are needed");
    }
    bp_function_properties own{};
    own.struct_size = sizeof own;
    Function made{nullptr, device, signature->pointers * sizeof(uint64_t) + signature->value_bytes, launch_limits(device),
                  name ? name : ""};
    pass<&bp_module::function, bp_module>(device, module, name, signature, &made.below, &own);
    if (own.max_group_size) made.limits.group = own.max_group_size;
    if (made.limits.local_bytes) made.limits.local_bytes -= std::min(own.local_bytes, made.limits.local_bytes - 1);
    *out = functions_.keep(module, made);
    if (!properties) return;
    own.struct_size = properties->struct_size;
    std::memcpy(static_cast<void*>(properties), &own, std::min<uint64_t>(own.struct_size, sizeof own));
  }

  void module_launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    if (!launch || launch->struct_size < sizeof *launch || !launch->function) {
      throw Error(BP_INVALID_ARGUMENT, "module.launch: a function and a bp_launch of full struct_size are needed");
    }
    Stream& on = usable(device, stream);
    const Function& function = *reinterpret_cast<const Function*>(launch->function);
    function.check(device, *launch);
    bp_launch below = *launch;
    below.struct_size = sizeof below;
    below.function = function.below;
    auto record = recorder_.queue(BP_ACTIVITY_KERNEL, device, stream, 0, function.name.c_str());
    if (ran_now(on, device, timed(record, [&] { launch_below(device, below); }))) return;
    auto kept = std::make_unique<KeptLaunch>(below);
    on.submit({[](Job& job, int32_t status) {
                 const std::unique_ptr<KeptLaunch> one(reinterpret_cast<KeptLaunch*>(job.words[2]));
                 if (status != BP_OK) return;
                 reinterpret_cast<KernelEntries*>(job.words[0])->launch_below(static_cast<int32_t>(job.words[1]), one->launch());
               },
               {reinterpret_cast<uint64_t>(this), static_cast<uint64_t>(device), reinterpret_cast<uint64_t>(kept.get())}},
              std::move(record));
    static_cast<void>(kept.release());  // the job's
  }
  /// The same where the streams are the driver's, and the records the shim's.
  void module_launch_below(int32_t device, bp_stream* stream, const bp_launch* launch) {
    events_.around(Records::work(BP_ACTIVITY_KERNEL, device), stream, [&] { pass<&bp_module::launch, bp_module>(device, stream, launch); });
  }

  /// One record of a run: what it holds has none of its own.
  void graph_launch_below(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
    events_.around(Records::work(BP_ACTIVITY_KERNEL, device), stream, [&] { pass<&bp_graph::launch, bp_graph>(device, stream, exec); });
  }

 private:
  void run_host_function(int32_t device, int32_t status, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    if (exec_below_ && status == BP_OK) {
      // The driver below calls destroy, whatever happens.
      inner_.group(exec_below_->head, exec_below_->enqueue, device, static_cast<bp_stream*>(nullptr), fn, arg, destroy);
      inner_.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
      return;
    }
    struct Destroy {
      void (*call)(void*);
      void* arg;
      ~Destroy() {
        if (call) call(arg);
      }
    } at_end{destroy, arg};
    if (status != BP_OK) return;
    const int32_t result = fn(arg);
    if (result != BP_OK) throw Error(BP_FAULT, std::string("a host_exec function returned ") + status_name(result));
  }

  void launch_below(int32_t device, const bp_launch& launch) {
    pass<&bp_module::launch, bp_module>(device, static_cast<bp_stream*>(nullptr), &launch);
    inner_.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
  }
  /// What the device's target says of launches, if the driver below has a compiler.
  LaunchLimits launch_limits(int32_t device) {
    LaunchLimits found;
    const auto& compiler = group<bp_compiler>().below;
    bp_target_properties target{};
    target.struct_size = sizeof target;
    if (!compiler || compiler->target(compiler->head.self, device, &target) != BP_OK) return found;
    std::copy(std::begin(target.max_grid), std::end(target.max_grid), found.grid);
    found.group = target.max_group_size;
    found.local_bytes = target.local_bytes;
    return found;
  }

  Functions functions_;
};

}  // namespace backplane::driver::emulate
