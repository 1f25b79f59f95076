// modules/target.h: what a device's kernels are compiled for, and whether it has a compiler at all.
#pragma once

#include <backplane/driver/compiler.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace backplane {

struct Target {
  bp_target_properties properties{};
  std::string compiler;  // bp.compiler's id: of compiler, version and prelude
  std::string prelude;

  // A loop over lanes is a vector loop of one item, which is a core.
  bool is_host() const { return properties.group_size == 1; }
};

// Whether the driver compiles kernels and runs them: it has bp.compiler and bp.module, and a device. Asked at each call of a portable
// kernel: an atomic load once it is known. Opens the driver.
bool can_compile();

// Of a device, asked of the driver once and valid until the process ends. Throws what the driver answers.
const Target& target_of(c10::DeviceIndex device);

// One of all_targets(), for a machine without the device. Does not open the driver. Throws for a name that is none.
Target target_named(const std::string& name);

// The names of all targets that the compiler can make, for a machine without the device. Does not open the driver. Empty without a
// compiler.
std::vector<std::string> all_targets();

}  // namespace backplane
