// check_driver/loader.cpp: where the shims lie, and the stack of them.
#include "loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "check.h"
#include "context.h"

namespace backplane::check {
namespace loader_impl {

void host_log(void*, int32_t level, const char* text) {
  static const char* const names[] = {"debug", "info", "warning", "error"};
  if (level >= BP_LOG_WARNING) fprintf(stderr, "%s: %s\n", level <= BP_LOG_ERROR ? names[level] : "log", text ? text : "");
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Where the SDK's shim of that name lies; empty if nowhere.
std::string find_sdk_shim(const Options& options, const std::string& name) {
  const std::string file = "libbackplane_" + name + ".so";
  const std::string beside_driver = options.driver.substr(0, options.driver.rfind('/'));
  for (const std::string& folder : {options.program_dir + "/../lib", beside_driver, options.program_dir}) {
    if (exists(folder + "/" + file)) return absolute(folder + "/" + file);
  }
  return "";
}

std::string shim_path(const Options& options, const std::string& shim) {
  if (shim.find('/') != std::string::npos) {
    if (!exists(shim)) throw LoadError{"there is no shim " + shim};
    return absolute(shim);
  }
  std::string path = find_sdk_shim(options, shim);
  if (path.empty()) {
    throw LoadError{"no shim named " + shim + ": libbackplane_" + shim + ".so is neither in " + options.program_dir +
                    "/../lib nor next to the driver. A shim of your own is given by its path, with a slash"};
  }
  return path;
}

// A new instance of one library over `inner`, with its normalised table. The inner instance is closed if the library refuses it.
const bp_driver* instance(const std::string& path, const std::string& config, const bp_driver* inner, bp_driver& whole) {
  const driver::Answer answer = ask(path, config, inner);
  if (answer.status != BP_OK && inner) inner->close(inner->self);
  whole = driver::checked_table(path, answer);
  return answer.table;
}

// What the core relies on and a driver does not have, in words; empty if it is complete.
std::string gaps(const bp_driver& table) {
  std::string text;
  const auto add = [&](bool missing, const char* what) {
    if (missing) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  add(!driver::has_streams(table), "streams");
  add(!driver::has_events(table), "events");
  add(!driver::has_pinned(table), "pinned memory");
  add(!driver::has_fill(table), "fill");
  add(table.flags & BP_DRIVER_SERIALIZE, "thread safety");
  return text;
}

}  // namespace loader_impl

driver::Answer ask(const std::string& path, const std::string& config, const bp_driver* inner, uint32_t abi_minor) {
  return driver::ask(driver::open_library(path), config, inner, loader_impl::host_log, BP_ABI_MAJOR, abi_minor);
}

const char* rule_of(driver::LoadStep step) {
  switch (step) {
    case driver::LoadStep::symbol:
      return "A driver is a shared object that exports bp_driver_get()";
    case driver::LoadStep::answer:
      return "Each call gives a new instance; a driver that refuses says why through host->set_error";
    case driver::LoadStep::abi:
      return "while abi_major is 0 the minor must be equal";
    case driver::LoadStep::size:
      return "the caller sets struct_size of a struct that it passes; the callee writes no byte beyond it";
    case driver::LoadStep::minimum:
      return "the minimum: nine entries";
    case driver::LoadStep::groups:
      return "streams: all of these, or none";
  }
  return "";
}

Stack load(const Options& options) {
  using namespace loader_impl;
  Stack stack;
  std::vector<std::string> paths;  // outermost first
  std::vector<std::string> names;
  for (const std::string& shim : options.shims) {
    paths.push_back(shim_path(options, shim));
    names.push_back(driver::shim_name(shim));
  }
  auto config = driver::options_by_shim(options.config);
  bp_driver whole{};
  const bp_driver* table = instance(options.driver, config[""], nullptr, whole);
  config.erase("");
  stack.own_streams = driver::has_streams(whole);
  const std::string missing = gaps(whole);
  if (!missing.empty() && std::find(names.begin(), names.end(), "emulate") == names.end()) {
    const std::string emulate = find_sdk_shim(options, "emulate");
    if (emulate.empty()) {
      stack.note = "the driver has no " + missing + ", and libbackplane_emulate.so, which would supply them, was not found";
    } else {
      stack.note = "emulate was added: the driver has no " + missing;
      paths.push_back(emulate);
      names.push_back("emulate");
    }
  }
  for (const auto& [name, keys] : config) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw LoadError{"the options name a shim \"" + name + "\" that is not loaded: add --shim " + name + ", or drop its keys"};
    }
  }
  for (size_t i = paths.size(); i-- > 0;) {
    table = instance(paths[i], config[names[i]], table, whole);
  }
  stack.table = whole;
  stack.instance = table;
  stack.shims = paths;
  return stack;
}

}  // namespace backplane::check
