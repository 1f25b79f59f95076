// modules/target.h: the target for which a device's kernels are compiled, and whether it has a compiler.
#pragma once

#include <backplane/driver/compiler.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace backplane {

struct Target {
  bp_target_properties properties{};
  std::string compiler;  // id() of bp.compiler: compiler, version and prelude
  std::string prelude;   // "" without the dialect

  // With a group size of 1, a loop over lanes is a vector loop of one item, which is a core.
  bool is_host() const { return properties.group_size == 1; }
};

// Whether the driver compiles kernels of that language and runs them: it has bp.compiler and bp.module, and a device whose target supports
// it. Checked at each call of a portable kernel: an atomic load once it is known. Opens the driver.
bool can_compile(uint32_t language = BP_LANGUAGE_DIALECT);

// The target of a device, queried once and valid until the process ends. Throws the driver's error.
const Target& target_of(c10::DeviceIndex device);

// One of all_targets(), for a machine without the device. Does not open the driver. Throws for an unknown name.
Target target_named(const std::string& name);

// The names of all targets of the compiler, for a machine without the device. Does not open the driver. Empty without a compiler.
std::vector<std::string> all_targets();

}  // namespace backplane
