// check_driver/loader.h: a driver and its shims, loaded as the core loads them.
#pragma once

#include <backplane/driver/cxx/load.hpp>

#include <string>
#include <vector>

#include "options.h"

namespace backplane::check {

// A driver under its shims: not opened; the caller closes it through the table, which ends all of them.
struct Stack {
  bp_driver table{};               // normalised, of the outermost
  const bp_driver* instance{};     // as bp_driver_get answered
  std::vector<std::string> shims;  // files, outermost first
  std::string note;                // why emulate was added or missed; empty otherwise
  bool own_streams = false;        // the driver has streams by itself
};

// driver::ask with this program's log.
driver::Answer ask(const std::string& path, const std::string& config, const bp_driver* inner, uint32_t abi_minor = BP_ABI_MINOR);

// The sentence of driver.h that a library breaks which fails at that step.
const char* rule_of(driver::LoadStep step);

// Loads the driver and its shims. A driver that leaves slots empty, or is not thread safe, is wrapped with the emulate shim if that is
// found, as the core does. Throws driver::LoadFailure; LoadError for a shim that is not found.
Stack load(const Options& options);

}  // namespace backplane::check
