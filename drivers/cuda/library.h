// drivers/cuda/library.h: libcuda.so.1 by dlopen, and what its results mean to the core.
//
// The library is looked for when an instance is made and stays loaded. A machine without it has no devices, and its compiler works.
#pragma once

#include <mutex>
#include <string>

#include <backplane/driver.h>

#include "cuda_api.h"

namespace backplane::driver::cuda {

class Library {
 public:
  /// path: empty for the system's own. Throws Error(BP_INVALID_ARGUMENT) for a path that cannot be loaded.
  explicit Library(const std::string& path);

  /// cuInit, once. False if there is no library, or no GPU: missing() is the reason. Throws for anything else that keeps CUDA from working.
  bool start() const;
  bool loaded() const { return loaded_; }
  const std::string& missing() const { return missing_; }

  /// "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
  std::string text(const char* call, CUresult result) const;

  /// Throws Error with what the result means; nothing for CUDA_SUCCESS. For calls that name no device's context.
  void check(CUresult result, const char* call) const;

#define BP_MEMBER(name, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
  BP_CUDA_FUNCTIONS(BP_MEMBER)
  BP_CUDA_NEWER_FUNCTIONS(BP_MEMBER)
#undef BP_MEMBER

 private:
  void* open(const std::string& path);

  mutable std::string missing_;
  mutable std::mutex mutex_;
  mutable bool started_ = false;
  bool loaded_ = false;
};

/// What a result means. FAULT and DEVICE_LOST are those after which the context answers every call with the same error.
bp_status status_of(CUresult result);

}  // namespace backplane::driver::cuda
