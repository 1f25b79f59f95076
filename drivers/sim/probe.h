// drivers/sim/probe.h: tries the C compiler on loops that some compilers miscompile, and chooses how kernels are optimised.
#pragma once

#include <string>
#include <vector>

namespace backplane::driver::sim {

struct Optimization {
  std::string flags;
  std::string report;  // "": these are the fastest, and right; else what the compiler does not get right, and the consequence
};

/// The fastest flags with which the compiler gets all loops of the probe right; the slowest, unless others were seen to be right. A
/// compiler that does not compile the probe gets the fastest, and a report.
///
/// command: the compiler, and the flags of every kernel. prelude: of BP_GROUP 1. Processes: two for each set of flags that is tried.
Optimization probe(const std::vector<std::string>& command, const std::string& prelude);

/// What the choice depends on, beside the compiler: for the key of caches.
std::string probe_id();

}  // namespace backplane::driver::sim
