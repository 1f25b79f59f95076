// check_driver/loader.cpp: dlopen, bp_driver_get and the load-time rules, for the driver and then for each shim outwards.
#include "loader.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <backplane/driver_table.hpp>
#include <memory>

#include "check.h"
#include "context.h"

namespace backplane::check {
namespace loader_impl {

// bp_host and what it points to must live until close(); a check's process ends soon after, so they are never freed.
struct Host {
  bp_host host{};
  std::string config;
  std::string reason;
};

void host_log(void*, int32_t level, const char* text) {
  static const char* const names[] = {"debug", "info", "warning", "error"};
  if (level >= BP_LOG_WARNING) fprintf(stderr, "%s: %s\n", level <= BP_LOG_ERROR ? names[level] : "log", text ? text : "");
}

void host_set_error(void* ctx, const char* text) { static_cast<Host*>(ctx)->reason = text ? text : ""; }

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string absolute(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  std::string result = resolved ? resolved : path;
  free(resolved);
  return result;
}

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

// The load-time rules, in order. Returns the normalised table.
bp_driver checked_table(const std::string& path, const bp_driver* table) {
  if (!table) throw LoadFailure{LoadStep::answer, path + ": bp_driver_get returned OK and set no table", "Each call gives a new instance"};
  // Of a table of another ABI only the first three members can be trusted.
  if (const auto mismatch = driver::abi_mismatch(table->abi_major, table->abi_minor)) {
    throw LoadFailure{LoadStep::abi, path + ": " + *mismatch + ". Build the driver against this SDK's include/backplane/driver.h",
                      "abi_major is 0 while the ABI is young, and then the minor must be equal"};
  }
  const uint64_t least = offsetof(bp_driver, stream_create);
  if (table->struct_size < least || table->struct_size % sizeof(void*) != 0) {
    throw LoadFailure{LoadStep::size,
                      path + ": the table's struct_size is " + std::to_string(table->struct_size) + ", expected sizeof(bp_driver) = " +
                          std::to_string(sizeof(bp_driver)) + "; the nine required entries alone end at " + std::to_string(least),
                      "the caller sets struct_size of a struct that it passes; the callee writes no byte beyond it"};
  }
  const bp_driver whole = driver::normalised(*table);
  if (const auto problem = driver::incomplete_group(whole)) {
    if (!driver::has_minimum(whole)) {
      throw LoadFailure{LoadStep::minimum, path + ": " + *problem + ". Nine entries make a device", "the minimum: nine entries"};
    }
    throw LoadFailure{LoadStep::groups, path + ": " + *problem + ". Fill the group's slots, or leave all of them NULL",
                      "streams: all of these, or none"};
  }
  return whole;
}

// A new instance of one library over `inner`. The inner instance is closed if the library refuses it.
const bp_driver* instance(const std::string& path, const std::string& config, const bp_driver* inner) {
  const bp_driver_get_fn get = open_library(path);
  const Answer answer = ask(get, config, inner);
  if (answer.status != BP_OK) {
    if (inner) inner->close(inner->self);
    const std::string reason = answer.reason.empty() ? "no reason given" : answer.reason;
    throw LoadFailure{
        LoadStep::answer,
        path + ": bp_driver_get refuses (" + status_text(answer.status) + "): " + reason + ". Its options were \"" + config + "\"",
        "A driver that refuses says why through host->set_error"};
  }
  return answer.table;
}

// What a driver lacks that the core relies on, in words; empty if it is complete.
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

bp_driver_get_fn open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    throw LoadFailure{LoadStep::symbol, "cannot open " + path + ": " + (why ? why : "no reason given"),
                      "A driver is a shared object that exports bp_driver_get()"};
  }
  void* symbol = dlsym(library, "bp_driver_get");
  if (!symbol) {
    throw LoadFailure{LoadStep::symbol,
                      path + " is no driver: it exports no symbol bp_driver_get. Define it with BP_EXPORT, and as extern \"C\" in C++",
                      "A driver is a shared object that exports bp_driver_get()"};
  }
  return reinterpret_cast<bp_driver_get_fn>(symbol);
}

Answer ask(bp_driver_get_fn get, const std::string& config, const bp_driver* inner, uint32_t abi_major, uint32_t abi_minor) {
  auto* host = new loader_impl::Host;
  host->config = config;
  host->host.struct_size = sizeof(bp_host);
  host->host.abi_major = abi_major;
  host->host.abi_minor = abi_minor;
  host->host.ctx = host;
  host->host.log = loader_impl::host_log;
  host->host.set_error = loader_impl::host_set_error;
  host->host.config = host->config.c_str();
  host->host.inner = inner;
  Answer answer;
  answer.status = get(&host->host, &answer.table);
  answer.reason = host->reason;
  return answer;
}

Stack load(const Options& options) {
  using namespace loader_impl;
  Stack stack;
  std::vector<std::string> paths;  // outermost first
  std::vector<std::string> names;
  for (const std::string& shim : options.shims) {
    paths.push_back(shim_path(options, shim));
    names.push_back(shim_name(shim));
  }
  const bp_driver* table = instance(options.driver, config_for(options.config, ""), nullptr);
  bp_driver whole = checked_table(options.driver, table);
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
  for (const std::string& name : named_shims(options.config)) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw LoadError{"the options name a shim \"" + name + "\" that is not loaded: add --shim " + name + ", or drop its keys"};
    }
  }
  for (size_t i = paths.size(); i-- > 0;) {
    table = instance(paths[i], config_for(options.config, names[i]), table);
    whole = checked_table(paths[i], table);
  }
  stack.table = whole;
  stack.instance = table;
  stack.shims = paths;
  return stack;
}

}  // namespace backplane::check
