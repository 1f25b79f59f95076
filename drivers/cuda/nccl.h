// drivers/cuda/nccl.h: NCCL, NVIDIA's collectives as a library, wherever it is installed, and what its results mean to the core.
#pragma once

#include <string>

#include <backplane/driver.h>

#include "nccl_api.h"

namespace backplane::driver::cuda {

/// A loaded NCCL of version 2.14 or newer, or what was looked for. Stays loaded.
struct Nccl {
  /// path: empty to look for it.
  explicit Nccl(const std::string& path);

  bool present = false;
  std::string looked_for;
  int version = 0;  // 22703 is 2.27.3

  bool splits() const { return ncclCommSplit && version >= nccl_version(2, 18); }
  bool reduces_float8() const { return version >= nccl_version(2, 24); }

  /// What every config begins with: a communicator whose calls do not block. `name` is kept by NCCL.
  ncclConfig_t config(const char* name, uint32_t max_units) const;
  /// "ncclAllReduce: unhandled cuda error (1): the text of NCCL's last error".
  std::string text(const char* call, ncclResult_t result) const;

#define BP_MEMBER(name, ...) ncclResult_t (*name)(__VA_ARGS__) = nullptr;
  BP_NCCL_FUNCTIONS(BP_MEMBER)
  BP_NCCL_NEWER_FUNCTIONS(BP_MEMBER)
#undef BP_MEMBER
#define BP_MEMBER(name, ...) const char* (*name)(__VA_ARGS__) = nullptr;
  BP_NCCL_TEXTS(BP_MEMBER)
#undef BP_MEMBER

 private:
  bool take(const std::string& name);
};

/// What a call returns that NCCL answered so. Of ncclUnhandledCudaError the device may know more.
bp_status status_of_call(ncclResult_t result);
/// How a communicator has failed.
bp_status status_of_failure(ncclResult_t result);

}  // namespace backplane::driver::cuda
