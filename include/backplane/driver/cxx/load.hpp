// backplane/driver/cxx/load.hpp: loads a driver or a shim by the rules of driver.h, for whoever hosts one: the core, the contract checker.
//
// A stack is loaded from the driver outwards: instantiate() each library over the one before. Nothing of the driver is called but
// bp_driver_get. Libraries stay loaded, and what bp_host points to stays allocated, for the life of the process.
#pragma once

#include <dlfcn.h>
#include <sys/stat.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "table.hpp"

namespace backplane::driver {

/// The steps of loading one library, in order.
enum class LoadStep { symbol, answer, abi, size, minimum, groups };

/// Thrown: what is wrong with a library, and what to do.
struct LoadFailure {
  LoadStep step;
  std::string text;
};

/// What bp_driver_get answered.
struct Answer {
  int32_t status = BP_INTERNAL;
  const bp_driver* table = nullptr;
  std::string reason;  // of set_error
};

/// Opens a library (RTLD_LOCAL) and finds its entry. Throws LoadFailure.
inline bp_driver_get_fn open_library(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {  // dlopen would wait for whoever writes to a pipe
    throw LoadFailure{LoadStep::symbol, "'" + path + "' is no regular file. Give the path of a shared object."};
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    throw LoadFailure{LoadStep::symbol, "The driver '" + path + "' cannot be opened: " + (why ? why : "no reason given") +
                                            ". A library that it needs may be missing: see `ldd " + path + "`."};
  }
  void* symbol = dlsym(library, "bp_driver_get");
  if (!symbol) {
    throw LoadFailure{LoadStep::symbol, "'" + path +
                                            "' is no Backplane driver: it does not export bp_driver_get. Export it with BP_EXPORT "
                                            "(backplane/driver.h) and C linkage."};
  }
  return reinterpret_cast<bp_driver_get_fn>(symbol);
}

/// Calls an entry. log: as bp_host.log, with a ctx that means nothing. inner: for a shim, the inner driver.
inline Answer ask(bp_driver_get_fn get, const std::string& config, const bp_driver* inner,
                  void (*log)(void* ctx, int32_t level, const char* text), uint32_t abi_major = BP_ABI_MAJOR,
                  uint32_t abi_minor = BP_ABI_MINOR) {
  struct Side {
    std::string config;
    std::string reason;
    bp_host host{};
  };
  static auto* const sides = new std::vector<std::unique_ptr<Side>>;
  static auto* const mutex = new std::mutex;
  Side* side = nullptr;
  {
    const std::lock_guard<std::mutex> lock(*mutex);
    side = sides->emplace_back(std::make_unique<Side>()).get();
  }
  side->config = config;
  const auto set_error = [](void* ctx, const char* text) { static_cast<Side*>(ctx)->reason = text ? text : ""; };
  side->host = {sizeof(bp_host), abi_major, abi_minor, side, log, set_error, side->config.c_str(), inner};
  Answer answer;
  answer.status = get(&side->host, &answer.table);
  answer.reason = side->reason;
  return answer;
}

/// What must hold of an answer before the table can be used. Returns the normalised table; throws LoadFailure.
inline bp_driver checked_table(const std::string& path, const Answer& answer) {
  const std::string driver = "The driver '" + path + "' ";
  if (answer.status != BP_OK) {
    throw LoadFailure{LoadStep::answer, driver + "refuses (" + status_name(answer.status) +
                                            "): " + (answer.reason.empty() ? "it gave no reason" : answer.reason)};
  }
  if (!answer.table) throw LoadFailure{LoadStep::answer, driver + "returned BP_OK and no table. bp_driver_get must set *out."};
  // Of a table of another ABI only the first three members can be trusted.
  if (const auto mismatch = abi_mismatch(answer.table->abi_major, answer.table->abi_minor)) {
    throw LoadFailure{LoadStep::abi, driver + "offers " + *mismatch +
                                         ". Build it against the driver.h of this torch-backplane, or install the torch-backplane that it "
                                         "was built for."};
  }
  const uint64_t least = offsetof(bp_driver, stream_create);
  if (answer.table->struct_size < least || answer.table->struct_size % sizeof(void*) != 0) {
    throw LoadFailure{LoadStep::size, driver + "has a table of " + std::to_string(answer.table->struct_size) +
                                          " bytes; the nine required entries need " + std::to_string(least) +
                                          ". Set struct_size = sizeof(bp_driver)."};
  }
  const bp_driver whole = normalised(*answer.table);
  if (const auto missing = incomplete_group(whole)) {
    throw LoadFailure{has_minimum(whole) ? LoadStep::groups : LoadStep::minimum,
                      driver + "is incomplete: " + *missing + ". Implement the slot, or set all slots of the group to NULL."};
  }
  return whole;
}

/// The option string cut by the shim that a key names: "devices=2,fault.alloc=17" gives {"": "devices=2", "fault": "alloc=17"}.
inline std::map<std::string, std::string> options_by_shim(const std::string& text) {
  std::map<std::string, std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    if (item.empty()) continue;
    // A dot in the value does not count.
    const size_t dot = item.substr(0, item.find('=')).find('.');
    const std::string shim = dot == std::string::npos ? "" : item.substr(0, dot);
    if (dot != std::string::npos) item.erase(0, dot + 1);
    std::string& part = parts[shim];
    part += (part.empty() ? "" : ",") + item;
  }
  return parts;
}

/// What a shim's options are prefixed with: its SDK name, or what is left of "libbackplane_<name>.so" or "lib<name>.so".
inline std::string shim_name(const std::string& name_or_path) {
  const size_t slash = name_or_path.rfind('/');
  if (slash == std::string::npos) return name_or_path;
  std::string name = name_or_path.substr(slash + 1);
  name = name.substr(0, name.find('.'));
  for (const std::string prefix : {"lib", "backplane_"}) {
    if (name.rfind(prefix, 0) == 0) name.erase(0, prefix.size());
  }
  return name;
}

}  // namespace backplane::driver
