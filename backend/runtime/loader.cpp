// runtime/loader.cpp: dlopen, version checks, shims.
#include "runtime/loader.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <backplane/driver_table.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "runtime/file_permissions.h"
#include "runtime/options.h"
#include "runtime/text.h"

namespace backplane {
namespace loader_impl {
namespace {

// What bp_host points to; never freed, because the driver may use it until close, and close may never come.
struct HostSide {
  std::string config;
  std::string refusal;
  bp_host host{};
};

void host_log(void*, int32_t level, const char* text) {
  if (level >= BP_LOG_WARNING) {
    TORCH_WARN(device_name(), " driver: ", text != nullptr ? readable(std::string_view(text)) : "(no text)");
  }
}

void host_set_error(void* ctx, const char* text) {
  static_cast<HostSide*>(ctx)->refusal = text != nullptr ? readable(std::string_view(text)) : "";
}

bp_driver_get_fn entry_point(const std::string& path) {
  namespace fs = std::filesystem;
  TORCH_CHECK(fs::path(path).is_absolute(), "The driver path '", path, "' is not absolute. Give the full path of the shared object.");
  std::error_code failed;
  const bool there = fs::exists(path, failed);
  TORCH_CHECK(!failed, "The driver '", path, "' cannot be looked up: ", failed.message(),
              ". Let this user read its folder, or set " BACKPLANE_ENV_PREFIX "_DRIVER to a shared object elsewhere.");
  TORCH_CHECK(there, "There is no file '", path,
              "'. Set " BACKPLANE_ENV_PREFIX "_DRIVER to a driver's shared object, or unset it to use the package's own.");
  // What lies beside this library is as safe as this library is.
  if (fs::path(path).parent_path() != library_folder()) require_private(path, "The driver");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library != nullptr, "The driver '", path, "' cannot be opened: ", dlerror(),
              ". A library that it needs may be missing: see `ldd ", path, "`.");
  auto get = reinterpret_cast<bp_driver_get_fn>(dlsym(library, "bp_driver_get"));
  TORCH_CHECK(get != nullptr, "'", path,
              "' is no Backplane driver: it does not export bp_driver_get. Export it with BP_EXPORT "
              "(backplane/driver.h) and C linkage.");
  return get;
}

// `inner` is NULL for the driver itself.
const bp_driver* instantiate(const std::string& path, const std::string& options, const bp_driver* inner) {
  const bp_driver_get_fn get = entry_point(path);
  // As long as the process: a driver may keep it until it is closed, also one that is refused below.
  static auto* const sides = new std::vector<std::unique_ptr<HostSide>>;
  HostSide* side = sides->emplace_back(std::make_unique<HostSide>()).get();
  side->config = options;
  side->host = {sizeof(bp_host), BP_ABI_MAJOR, BP_ABI_MINOR, side, host_log, host_set_error, side->config.c_str(), inner};
  const bp_driver* table = nullptr;
  const int32_t status = get(&side->host, &table);
  TORCH_CHECK(status == BP_OK, "The driver '", path, "' refuses (", driver::status_name(status),
              "): ", side->refusal.empty() ? "it gave no reason" : side->refusal);
  TORCH_CHECK(table != nullptr, "The driver '", path, "' returned BP_OK and no table. bp_driver_get must set *out.");
  TORCH_CHECK(table->struct_size >= offsetof(bp_driver, stream_create), "The driver '", path, "' has a table of ", table->struct_size,
              " bytes; the nine required entries need ", offsetof(bp_driver, stream_create), ". Set struct_size = sizeof(bp_driver).");
  if (const auto mismatch = driver::abi_mismatch(table->abi_major, table->abi_minor)) {
    TORCH_CHECK(false, "The driver '", path, "' offers ", *mismatch,
                ". Build it against the driver.h of torch-backplane " BACKPLANE_VERSION
                ", or install the torch-backplane that it was built for.");
  }
  const bp_driver whole = driver::normalised(*table);
  if (const auto missing = driver::incomplete_group(whole)) {
    TORCH_CHECK(false, "The driver '", path, "' is incomplete: ", *missing, ". Implement the slot, or set all slots of the group to NULL.");
  }
  return table;
}

std::string shim_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const std::string path = library_folder() + "/libbackplane_" + name + ".so";
  std::error_code failed;
  TORCH_CHECK(std::filesystem::exists(path, failed), "There is no shim '", name, "' (looked for ", path,
              "). Name a shim of the SDK, such as 'emulate', or give the absolute path of a shared object.");
  return path;
}

// What a shim's options are prefixed with: its SDK name, or what is left of "libbackplane_<name>.so" or "lib<name>.so".
std::string shim_key(const std::string& shim) {
  std::string name = shim.find('/') == std::string::npos ? shim : std::filesystem::path(shim).stem().string();
  for (const std::string prefix : {"lib", "backplane_"}) {
    if (name.rfind(prefix, 0) == 0) name.erase(0, prefix.size());
  }
  return name;
}

template <class Group>
const Group* optional_group(const bp_driver& table, const char* id, uint32_t version) {
  const auto found = driver::find_group<Group>(table, id, version);
  return found ? new Group(*found) : nullptr;  // lives as long as the table
}

}  // namespace
}  // namespace loader_impl

std::string library_folder() {
  Dl_info info{};
  TORCH_CHECK(dladdr(reinterpret_cast<void*>(&library_folder), &info) != 0 && info.dli_fname != nullptr,
              "cannot find the folder of the device's library");
  return std::filesystem::absolute(info.dli_fname).parent_path().string();
}

Driver load(LoadRequest& request) {
  using namespace loader_impl;
  auto options = split_options(request.options);
  const bp_driver* table = instantiate(request.driver, options[""], nullptr);
  options.erase("");
  if (!driver::is_complete(driver::normalised(*table)) &&
      std::find(request.shims.begin(), request.shims.end(), "emulate") == request.shims.end()) {
    request.shims.push_back("emulate");
  }
  for (auto shim = request.shims.rbegin(); shim != request.shims.rend(); ++shim) {
    const std::string key = shim_key(*shim);
    table = instantiate(shim_path(*shim), options[key], table);
    options.erase(key);
  }
  if (!options.empty()) {
    TORCH_CHECK(false, BACKPLANE_ENV_PREFIX "_OPTIONS has '", options.begin()->first, ".", options.begin()->second, "', but no shim '",
                options.begin()->first,
                "' is loaded. Add it to " BACKPLANE_ENV_PREFIX "_SHIMS, or drop the prefix for the driver's own options.");
  }
  Driver loaded;
  loaded.table = driver::normalised(*table);
  TORCH_CHECK(driver::is_complete(loaded.table), "The driver '", request.driver,
              "' with its shims offers no complete table. Put 'emulate' last in " BACKPLANE_ENV_PREFIX
              "_SHIMS, so that it stands directly over the driver.");
  loaded.host_exec = optional_group<bp_host_exec>(loaded.table, BP_HOST_EXEC_ID, BP_HOST_EXEC_VERSION);
  loaded.host_view = optional_group<bp_host_view>(loaded.table, BP_HOST_VIEW_ID, BP_HOST_VIEW_VERSION);
  loaded.peer = optional_group<bp_peer>(loaded.table, BP_PEER_ID, BP_PEER_VERSION);
  loaded.vmm = optional_group<bp_vmm>(loaded.table, BP_VMM_ID, BP_VMM_VERSION);
  loaded.ipc = optional_group<bp_ipc>(loaded.table, BP_IPC_ID, BP_IPC_VERSION);
  constexpr uint32_t kInPlace = BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ;
  loaded.zero_copy = loaded.host_view != nullptr && (loaded.host_view->head.flags & kInPlace) == kInPlace;
  return loaded;
}

}  // namespace backplane
