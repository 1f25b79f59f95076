// drivers/shims/emulate/modules.h: kernels of bp.module on the shim's own streams: what a launch of a function may say, and a launch that
// is kept until its turn comes.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <backplane/driver/module.h>
#include <backplane/driver/cxx/error.hpp>

#include "../../engine/engine.h"

namespace backplane::driver::emulate {

/// What a launch is held to. 0: unknown, and then the driver below decides.
struct LaunchLimits {
  uint64_t grid[3] = {};
  uint32_t group = 0;
  uint32_t local_bytes = 0;
};

/// What a bp_function is here.
struct Function {
  bp_function* below = nullptr;
  int32_t device = 0;
  uint64_t args_bytes = 0;
  LaunchLimits limits;
  std::string name;

  /// Throws what the driver below would say of the launch, as far as the shim can know it.
  void check(int32_t on, const bp_launch& launch) const {
    need_no_flags("module.launch", launch.flags);
    if (on != device) refuse("the function is of device " + std::to_string(device) + ", not of " + std::to_string(on));
    if (!launch.args || launch.args_bytes != args_bytes) {
      refuse("args has " + std::to_string(launch.args ? launch.args_bytes : 0) + " bytes, the function takes " +
             std::to_string(args_bytes));
    }
    for (int i = 0; i < 3; ++i) {
      if (launch.grid[i] == 0 || (limits.grid[i] != 0 && launch.grid[i] > limits.grid[i])) {
        refuse("grid[" + std::to_string(i) + "] is " + std::to_string(launch.grid[i]) + ", needed is 1 to " + most(limits.grid[i]));
      }
    }
    if (launch.group[0] == 0 || (limits.group != 0 && launch.group[0] > limits.group) || launch.group[1] != 1 || launch.group[2] != 1) {
      refuse("group is (" + std::to_string(launch.group[0]) + ", " + std::to_string(launch.group[1]) + ", " +
             std::to_string(launch.group[2]) + "), needed is (1 to " + most(limits.group) + ", 1, 1)");
    }
    if (limits.local_bytes != 0 && launch.local_bytes > limits.local_bytes) {
      refuse("local_bytes is " + std::to_string(launch.local_bytes) + ", left are " + std::to_string(limits.local_bytes));
    }
  }

 private:
  [[noreturn]] static void refuse(const std::string& why) { throw Error(BP_INVALID_ARGUMENT, "module.launch: " + why); }
  static std::string most(uint64_t limit) { return limit ? std::to_string(limit) : "what the device takes"; }
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

}  // namespace backplane::driver::emulate
