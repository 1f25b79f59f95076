// runtime/loader.cpp: locates the driver and its shims, checks who can write them, and builds their stack.
#include "runtime/loader.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <backplane/driver/cxx/load.hpp>
#include <filesystem>

#include "runtime/file_permissions.h"
#include "runtime/options.h"
#include "runtime/text.h"

namespace backplane {
namespace loader_impl {
namespace {

void host_log(void*, int32_t level, const char* text) {
  if (level >= BP_LOG_WARNING) {
    TORCH_WARN(device_name(), " driver: ", text != nullptr ? readable(std::string_view(text)) : "(no text)");
  }
}

void check_path(const std::string& path, bool is_shim) {
  namespace fs = std::filesystem;
  const char* what = is_shim ? "shim" : "driver";
  const char* variable = is_shim ? BACKPLANE_ENV_PREFIX "_SHIMS" : BACKPLANE_ENV_PREFIX "_DRIVER";
  TORCH_CHECK(fs::path(path).is_absolute(), "The ", what, " path '", path, "' is not absolute. Give the full path of the shared object.");
  std::error_code failed;
  const bool there = fs::exists(path, failed);
  TORCH_CHECK(!failed, "The ", what, " '", path, "' cannot be looked up: ", failed.message(), ". Let this user read its folder, or set ",
              variable, " to a shared object elsewhere.");
  TORCH_CHECK(there, "There is no file '", path, "'. Set ", variable,
              is_shim ? " to names of the SDK's shims and absolute paths of others, or unset it."
                      : " to a driver's shared object, or unset it to use the package's own.");
  // A file beside this library is as safe as this library.
  if (fs::path(path).parent_path() != library_folder()) require_private(path, is_shim ? "The shim" : "The driver");
}

// `inner` is the inner driver of a shim; NULL for the driver itself.
const bp_driver* instantiate(const std::string& path, const std::string& options, const bp_driver* inner) {
  check_path(path, inner != nullptr);
  try {
    const driver::Answer answer = driver::ask(driver::open_library(path), options, inner, host_log);
    static_cast<void>(driver::checked_table(path, answer));
    return answer.table;
  } catch (const driver::LoadFailure& failure) {
    TORCH_CHECK(false, readable(failure.text), failure.step == driver::LoadStep::abi ? " This one is " BACKPLANE_VERSION "." : "");
  }
}

std::string shim_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const std::string path = library_folder() + "/libbackplane_" + name + ".so";
  std::error_code failed;
  TORCH_CHECK(std::filesystem::exists(path, failed), "There is no shim '", name, "' (looked for ", path,
              "). Name a shim of the SDK, such as 'emulate', or use the absolute path of a shared object.");
  return path;
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
  auto options = driver::options_by_shim(request.options);
  const bp_driver* table = instantiate(request.driver, options[""], nullptr);
  options.erase("");
  if (!driver::is_complete(driver::normalised(*table)) &&
      std::find(request.shims.begin(), request.shims.end(), "emulate") == request.shims.end()) {
    request.shims.push_back("emulate");
  }
  for (auto shim = request.shims.rbegin(); shim != request.shims.rend(); ++shim) {
    const std::string key = driver::shim_name(*shim);
    table = instantiate(shim_path(*shim), options[key], table);
    options.erase(key);
  }
  if (!options.empty()) {
    TORCH_CHECK(false, BACKPLANE_ENV_PREFIX "_OPTIONS has '", options.begin()->first, ".", options.begin()->second, "', but no shim '",
                options.begin()->first,
                "' is loaded. Add it to " BACKPLANE_ENV_PREFIX "_SHIMS, or drop the prefix for the driver's own options.");
  }
  Driver loaded;
  const auto refuse_other = [&](const char* id, uint32_t version) {
    const bp_ext* found = nullptr;
    if (loaded.table.query_ext == nullptr || loaded.table.query_ext(loaded.table.self, id, version, &found) != BP_OK || !found) return;
    const auto wrong = driver::wrong_head(*found, id, version);
    TORCH_CHECK(!wrong, "The driver '", request.driver, "': ", *wrong, ". Answer with the group that is asked for, or BP_UNSUPPORTED.");
  };
  loaded.table = driver::normalised(*table);
  TORCH_CHECK(driver::is_complete(loaded.table), "The driver '", request.driver,
              "' with its shims offers no complete table. Put 'emulate' last in " BACKPLANE_ENV_PREFIX
              "_SHIMS, so that it is directly above the driver.");
// The libraries live as long as the table.
#define BP_LOAD(group, GROUP, about)                   \
  refuse_other(BP_##GROUP##_ID, BP_##GROUP##_VERSION); \
  if (const auto found = driver::find_group<bp_##group>(loaded.table)) loaded.group = new bp_##group(*found);
  BP_DRIVER_GROUPS(BP_LOAD)
#undef BP_LOAD
  constexpr uint32_t kInPlace = BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ;
  loaded.zero_copy = loaded.host_view != nullptr && (loaded.host_view->head.flags & kInPlace) == kInPlace;
  return loaded;
}

}  // namespace backplane
