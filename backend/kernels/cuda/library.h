// kernels/cuda/library.h: what the kernels through NVIDIA's libraries share: where a library is, and which devices it runs on.
#pragma once

#include <c10/core/Device.h>
#include <dlfcn.h>

#include <initializer_list>

namespace backplane::cuda {

constexpr c10::DeviceIndex kMostDevices = 64;

/// Whether the device's driver is the CUDA driver, whose streams and memory NVIDIA's libraries take.
bool is_cuda(c10::DeviceIndex device);

/// A library by the first of its names that is found: where the loader looks (LD_LIBRARY_PATH, and what is loaded already, as by a CUDA
/// build of torch), in CUDA_HOME, CUDA_PATH and /usr/local/cuda, and among pip's packages beside torch. NULL if it is nowhere. It stays
/// loaded.
void* open_library(std::initializer_list<const char*> names);

/// The functions of a library that is open, found by their names.
class Functions {
 public:
  explicit Functions(void* file) : file_(file) {}
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(file_, name));
    are_whole_ = are_whole_ && function != nullptr;
  }
  bool are_whole() const { return are_whole_; }  // none was missing so far

 private:
  void* file_;
  bool are_whole_ = true;
};

}  // namespace backplane::cuda
