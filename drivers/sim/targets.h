// drivers/sim/targets.h: the machines that kernels of the simulated device are compiled for: levels of the host's own processor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <backplane/driver/compiler.h>

namespace backplane::driver::sim {

/// One of them. A level and not the exact processor: code that one machine compiled may be kept on a disk that others share.
struct Target {
  const char* name;
  const char* flags;  // of the compiler; NULL: what it takes by itself
  uint32_t vector_bytes;
  uint32_t registers;  // of vector_bytes each
};

/// All that the compiler can make, the newest first.
const std::vector<Target>& all_targets();

/// The one of this machine, or of that name: an older level of it. Throws for another.
const Target& own_target(const std::string& name = "");

/// nullptr: no target of that name.
const Target* find_target(const char* name);

/// What kernels may rely on, with up to `items` items in a group, and with float64 or without; and what they are written in.
bp_target_properties properties_of(const Target& target, uint32_t items, bool float64, uint64_t languages);

/// Work-group memory of a group: with one item on the stack of the thread that runs the kernel, with more in a block of its own.
constexpr uint32_t local_bytes(uint32_t items) { return items == 1 ? uint32_t{1} << 20 : uint32_t{64} << 10; }

constexpr uint32_t kMaxGrid = 0x7fffffff;  // of each dimension: numbers of groups are i32
constexpr uint32_t kParameterBytes = 4096;

}  // namespace backplane::driver::sim
