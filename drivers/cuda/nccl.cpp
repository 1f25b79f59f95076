// drivers/cuda/nccl.cpp: NCCL's places, its symbols, and the tables of its results.
#include "nccl.h"

#include <dlfcn.h>

#include "places.h"

namespace backplane::driver::cuda {

Nccl::Nccl(const std::string& path) {
  if (!path.empty()) {
    take(path);
    return;
  }
  // By its name first: the one that torch has loaded.
  const Places places = {{"libnccl.so.2"}, {"lib64/libnccl.so.2"}, {"nvidia/nccl/lib/libnccl.so.2"}};
  look_for(places, looked_for, [&](const std::string& file) { return take(file); });
}

bool Nccl::take(const std::string& name) {
  void* library = load_library(name, looked_for);
  if (!library) return false;
  const char* absent = nullptr;
#define BP_RESOLVE(name, ...) name = reinterpret_cast<ncclResult_t (*)(__VA_ARGS__)>(dlsym(library, #name));
  BP_NCCL_NEWER_FUNCTIONS(BP_RESOLVE)
#undef BP_RESOLVE
#define BP_RESOLVE(name, ...)                                                    \
  name = reinterpret_cast<ncclResult_t (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (!name && !absent) absent = #name;
  BP_NCCL_FUNCTIONS(BP_RESOLVE)
#undef BP_RESOLVE
#define BP_RESOLVE(name, ...)                                                   \
  name = reinterpret_cast<const char* (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (!name && !absent) absent = #name;
  BP_NCCL_TEXTS(BP_RESOLVE)
#undef BP_RESOLVE
  // First the version: it says more than the first function that is missing.
  version = 0;
  const bool known = ncclGetVersion && ncclGetVersion(&version) == ncclSuccess;
  if (known && version < nccl_version(2, 14)) {
    looked_for += " (NCCL's version " + std::to_string(version) + " is too old: 2.14 or newer is needed)";
    return false;
  }
  if (!known || absent) {
    looked_for += std::string(" (it has no ") + (absent ? absent : "version") + ")";
    return false;
  }
  present = true;
  return true;
}

ncclConfig_t Nccl::config(const char* name, uint32_t max_units) const {
  ncclConfig_t config{};
  // The layouts of 2.18 and 2.27. What a library does not know of it, it does not read.
  const bool named = version >= nccl_version(2, 27);
  config.size = named ? sizeof config : offsetof(ncclConfig_t, trafficClass);
  config.magic = kNcclMagic;
  config.version = static_cast<unsigned>(named ? nccl_version(2, 27) : nccl_version(2, 18));
  config.blocking = 0;
  config.cgaClusterSize = config.minCTAs = config.maxCTAs = config.splitShare = config.trafficClass = NCCL_CONFIG_UNDEF_INT;
  if (max_units) config.maxCTAs = static_cast<int>(max_units);
  config.commName = name;
  return config;
}

std::string Nccl::text(const char* call, ncclResult_t result) const {
  const char *what = ncclGetErrorString(result), *last = ncclGetLastError(nullptr);
  return std::string(call) + ": " + (what ? what : "an unknown error") + " (" + std::to_string(result) + ")" +
         (last && *last ? std::string(": ") + last : "");
}

bp_status status_of_call(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return BP_OK;
    case ncclInProgress:
      return BP_PENDING;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return BP_INVALID_ARGUMENT;
    default:
      return BP_INTERNAL;
  }
}

bp_status status_of_failure(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return BP_OK;
    case ncclRemoteError:
      return BP_DEVICE_LOST;
    case kNcclTimeout:
      return BP_TIMEOUT;
    default:
      return BP_INTERNAL;
  }
}

}  // namespace backplane::driver::cuda
