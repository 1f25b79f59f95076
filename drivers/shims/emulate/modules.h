// drivers/shims/emulate/modules.h: kernels of bp.module: recorded on the inner driver's streams; on the shim's own, launches that are
// checked at the call and run in stream order.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <backplane/driver/cxx/kernels.hpp>

#include "state.h"

namespace backplane::driver::emulate {

/// What a bp_function is here.
struct Function {
  bp_function* inner = nullptr;
  LaunchLimits limits;  // what the inner driver would say of a launch, as far as the shim can know it
  std::string name;
};

/// The functions of each module, which live as long as it.
class Functions {
 public:
  bp_function* keep(bp_module_code* module, const Function& function) {
    auto kept = std::make_unique<Function>(function);
    std::lock_guard lock(mutex_);
    return reinterpret_cast<bp_function*>(of_[module].emplace_back(std::move(kept)).get());
  }
  void forget(bp_module_code* module) {
    std::lock_guard lock(mutex_);
    of_.erase(module);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<bp_module_code*, std::vector<std::unique_ptr<Function>>> of_;
};

/// A launch with its arguments, which the caller of the original may change meanwhile.
class KeptLaunch {
 public:
  explicit KeptLaunch(const bp_launch& given) : args_(new uint64_t[(given.args_bytes + 7) / 8]), launch_(given) {
    std::memcpy(args_.get(), given.args, given.args_bytes);
    launch_.args = args_.get();
  }
  const bp_launch& launch() const { return launch_; }

 private:
  std::unique_ptr<uint64_t[]> args_;
  bp_launch launch_;
};

/// On the inner driver's streams, where the records may be the shim's.
struct ModuleEntries : Intercepted<bp_module> {
  using InterceptedGroup::InterceptedGroup;

  void launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    state.events.around(Records::work(BP_ACTIVITY_KERNEL, device), stream, [&] { (*this)(&bp_module::launch, device, stream, launch); });
  }
};

/// On the shim's own streams. Functions know what a launch of them may say, since what the inner driver refuses when the job runs would be
/// a fault of the device.
class OwnModuleEntries : public PassingGroup<bp_module> {
 public:
  OwnModuleEntries(State& state, PassingGroup<bp_compiler>& compiler) : PassingGroup(state.inner), state_(state), compiler_(compiler) {}

  void load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    state_.check(device);
    (*this)(&bp_module::load, device, code, bytes, out);
  }

  void unload(int32_t device, bp_module_code* module) {
    (*this)(&bp_module::unload, device, module);
    functions_.forget(module);
  }

  void function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                bp_function_properties* properties) {
    need(out, "module.function: out");
    need_signature(name, signature, UINT64_MAX);
    auto own = sized<bp_function_properties>();
    Function made{nullptr, launch_limits(device), name};
    made.limits.args_bytes = signature->pointers * sizeof(uint64_t) + signature->value_bytes;
    (*this)(&bp_module::function, device, module, name, signature, &made.inner, &own);
    if (own.max_group_size) made.limits.group = own.max_group_size;
    if (made.limits.local_bytes) made.limits.local_bytes -= std::min(own.local_bytes, made.limits.local_bytes - 1);
    *out = functions_.keep(module, made);
    if (properties) hand_out(properties, own, "module.function: properties");
  }

  void launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    need_launch(launch);
    Stream& on = state_.engine.usable(device, stream);
    const Function& function = *reinterpret_cast<const Function*>(launch->function);
    function.limits.check(device, *launch);
    bp_launch given = *launch;
    given.struct_size = sizeof given;
    given.function = function.inner;
    auto record = state_.recorder.queue(BP_ACTIVITY_KERNEL, device, stream, 0, function.name.c_str());
    if (state_.ran_now(on, device, timed(record, [&] { launch_inner(device, given); }))) return;
    on.submit_owned(
        [this, device, kept = KeptLaunch(given)](int32_t status) {
          if (status == BP_OK) launch_inner(device, kept.launch());
        },
        std::move(record));
  }

 private:
  void launch_inner(int32_t device, const bp_launch& launch) {
    (*this)(&bp_module::launch, device, static_cast<bp_stream*>(nullptr), &launch);
    state_.inner.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
  }
  /// What the device's target says of launches, if the inner driver has a compiler.
  LaunchLimits launch_limits(int32_t device) {
    LaunchLimits found;
    found.device = device;
    auto target = sized<bp_target_properties>();
    if (!compiler_.found() || compiler_.status(&bp_compiler::target, device, &target) != BP_OK) return found;
    std::copy(std::begin(target.max_grid), std::end(target.max_grid), found.grid);
    found.group = target.max_group_size;
    found.local_bytes = target.local_bytes;
    return found;
  }

  State& state_;
  PassingGroup<bp_compiler>& compiler_;
  Functions functions_;
};

}  // namespace backplane::driver::emulate
