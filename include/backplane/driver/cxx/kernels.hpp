// backplane/driver/cxx/kernels.hpp: signatures and launches of bp.module, checked before the runtime sees them.
//
//     need_signature(name, signature, parameter_bytes);                                           // function
//     need_launch(launch);  kernel.limits.check(*launch);                                         // launch
#pragma once

#include <cstdint>
#include <string>

#include "../module.h"
#include "error.hpp"

namespace backplane::driver {

/// Throws Error(BP_INVALID_ARGUMENT) for one that no kernel can have. parameter_bytes: the most that a launch's arguments may have.
inline void need_signature(const char* kernel, const bp_signature* signature, uint64_t parameter_bytes) {
  need(kernel, "module.function: name");
  const auto hold = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(BP_INVALID_ARGUMENT, std::string("module.function: ") + kernel + ": " + what);
  };
  hold(signature && signature->struct_size >= sizeof *signature, "the signature, with its struct_size, is needed");
  const uint32_t pointers = signature->pointers, value_bytes = signature->value_bytes;
  hold(pointers >= 1 && pointers <= 64, format("%u pointers; it may have from 1 to 64", pointers));
  hold(value_bytes >= 8 && value_bytes % 8 == 0, format("a value of %u bytes; it must be a multiple of 8", value_bytes));
  hold(pointers == 64 || signature->written >> pointers == 0, "written names a pointer that is not there");
  hold(8 * uint64_t{pointers} + value_bytes <= parameter_bytes, format("the arguments are more than %llu bytes", wide(parameter_bytes)));
}

/// Throws Error(BP_INVALID_ARGUMENT) where `launch` names no function.
inline void need_launch(const bp_launch* launch) {
  if (!launch || launch->struct_size < sizeof *launch || !launch->function) {
    throw Error(BP_INVALID_ARGUMENT, "module.launch: launch, with its function and struct_size, is needed");
  }
}

/// What launches of a function are held to. 0: unknown, and not checked.
struct LaunchLimits {
  int32_t device = 0;
  uint64_t args_bytes = 0;
  uint64_t grid[3] = {};
  uint32_t least_group = 1, group = 0;
  uint32_t local_bytes = 0;  // beside the kernel's own

  /// Throws Error(BP_INVALID_ARGUMENT).
  void check(int32_t on, const bp_launch& launch) const {
    const auto most = [](uint64_t limit) { return limit ? std::to_string(limit) : std::string("what the device takes"); };
    const auto three = [](const uint32_t (&of)[3]) { return format("%u x %u x %u", of[0], of[1], of[2]); };
    const auto refuse = [](const std::string& why) { throw Error(BP_INVALID_ARGUMENT, "module.launch: " + why); };
    if (on != device) refuse(format("a function of device %d, on device %d", device, on));
    if (launch.flags != 0) refuse(format("flags must be 0, not 0x%x", launch.flags));
    if (!launch.args || launch.args_bytes != args_bytes) {
      refuse(format("%llu bytes of arguments; the kernel takes %llu", wide(launch.args ? launch.args_bytes : 0), wide(args_bytes)));
    }
    if (launch.group[0] < least_group || (group != 0 && launch.group[0] > group) || launch.group[1] != 1 || launch.group[2] != 1) {
      refuse("a group of " + three(launch.group) + " items; the kernel was compiled for " + (least_group == group ? "" : "up to ") +
             most(group) + " x 1 x 1");
    }
    if (local_bytes != 0 && launch.local_bytes > local_bytes) {
      refuse(format("%u bytes of work-group memory; a group has %u left", launch.local_bytes, local_bytes));
    }
    for (int i = 0; i < 3; ++i) {
      if (launch.grid[i] != 0 && (grid[i] == 0 || launch.grid[i] <= grid[i])) continue;
      refuse("a grid of " + three(launch.grid) + " groups; it may have from 1 to " + most(grid[0]) + " x " + most(grid[1]) + " x " +
             most(grid[2]));
    }
  }
};

}  // namespace backplane::driver
