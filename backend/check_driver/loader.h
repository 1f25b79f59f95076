// check_driver/loader.h: opens a driver and its shims by the rules of driver.h, and says at which of them it failed.
#pragma once

#include <backplane/driver.h>

#include <string>
#include <vector>

#include "options.h"

namespace backplane::check {

// The steps of loading one library, in order. Each is a check of the family "load".
enum class LoadStep { symbol, answer, abi, size, minimum, groups };

struct LoadFailure {
  LoadStep step;
  std::string text;
  std::string rule;
};

// A driver under its shims: not opened; the caller closes it through the table, which ends all of them.
struct Stack {
  bp_driver table{};               // normalised, of the outermost
  const bp_driver* instance{};     // as bp_driver_get answered
  std::vector<std::string> shims;  // files, outermost first
  std::string note;                // why emulate was added or missed; empty otherwise
  bool own_streams = false;        // the driver has streams by itself
};

// What bp_driver_get answered.
struct Answer {
  int32_t status = BP_INTERNAL;
  const bp_driver* table = nullptr;
  std::string reason;  // of set_error
};

// Opens a library by absolute path (RTLD_LOCAL) and finds its entry. Throws LoadFailure.
bp_driver_get_fn open_library(const std::string& path);

// Calls an entry with this program's bp_host, or with another ABI version than the program's own.
Answer ask(bp_driver_get_fn get, const std::string& config, const bp_driver* inner, uint32_t abi_major = BP_ABI_MAJOR,
           uint32_t abi_minor = BP_ABI_MINOR);

// Loads the driver and its shims. A driver that leaves slots empty, or is not thread safe, is wrapped with the emulate shim if that is
// found, as the core does. Throws LoadFailure; LoadError for a shim that is not found.
Stack load(const Options& options);

}  // namespace backplane::check
