// drivers/cuda/library.cpp: the symbols, the start, and the table of results.
#include "library.h"

#include <dlfcn.h>

#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver::cuda {

Library::Library(const std::string& path) {
  void* library = dlopen(path.empty() ? "libcuda.so.1" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    missing_ = std::string("libcuda.so.1, which NVIDIA's driver brings, cannot be loaded: ") + (why ? why : "no reason given");
    if (!path.empty()) throw Error(BP_INVALID_ARGUMENT, "options: libcuda=" + path + ": " + (why ? why : "it cannot be loaded"));
    return;
  }
  const char* absent = nullptr;
#define BP_RESOLVE(name, ...)                                                \
  name = reinterpret_cast<CUresult (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (!name && !absent) absent = #name;
  BP_CUDA_FUNCTIONS(BP_RESOLVE)
#undef BP_RESOLVE
#define BP_RESOLVE(name, ...) name = reinterpret_cast<CUresult (*)(__VA_ARGS__)>(dlsym(library, #name));
  BP_CUDA_NEWER_FUNCTIONS(BP_RESOLVE)
#undef BP_RESOLVE
  if (absent) {
    missing_ = std::string("libcuda.so.1 has no ") + absent + ": NVIDIA's driver is too old; CUDA 11.4 or newer is needed";
    if (!path.empty()) throw Error(BP_INVALID_ARGUMENT, "options: libcuda=" + path + ": it has no " + absent);
    return;
  }
  loaded_ = true;
}

bool Library::start() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!loaded_) return false;
  if (started_) return missing_.empty();
  const CUresult result = cuInit(0);
  if (result == CUDA_ERROR_NOT_INITIALIZED) {
    throw Error(BP_UNSUPPORTED, text("cuInit", result) + "; CUDA was used before this process was forked. Start it by spawn instead");
  }
  // A stub library is what toolkits bring for linking: there is no driver.
  if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_STUB_LIBRARY) {
    missing_ = text("cuInit", result);
  } else {
    check(result, "cuInit");
  }
  started_ = true;
  return missing_.empty();
}

std::string Library::text(const char* call, CUresult result) const {
  const char *name = nullptr, *what = nullptr;
  if (cuGetErrorName) cuGetErrorName(result, &name);
  if (cuGetErrorString) cuGetErrorString(result, &what);
  return std::string(call) + ": " + (name ? name : "an unknown error") + " (" + std::to_string(result) + ")" +
         (what ? std::string(": ") + what : "");
}

void Library::check(CUresult result, const char* call) const {
  if (result != CUDA_SUCCESS) throw Error(status_of(result), text(call, result));
}

bp_status status_of(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return BP_OK;
    case CUDA_ERROR_NOT_READY:
      return BP_PENDING;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return BP_OUT_OF_MEMORY;
    case CUDA_ERROR_INVALID_DEVICE:
      return BP_INVALID_DEVICE;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_ILLEGAL_STATE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:  // of a block: more registers or memory than one has
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:  // captures that others in the process have begun; of its own the driver asks beforehand
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
      return BP_INVALID_ARGUMENT;
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:  // another process has it for itself
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return BP_UNSUPPORTED;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return BP_FAULT;
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
      return BP_DEVICE_LOST;
    default:
      return BP_INTERNAL;
  }
}

}  // namespace backplane::driver::cuda
