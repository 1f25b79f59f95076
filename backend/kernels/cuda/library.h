// kernels/cuda/library.h: shared by the kernels of NVIDIA's libraries: where a library is, and on which devices it runs.
#pragma once

#include <c10/core/Device.h>
#include <dlfcn.h>

#include <initializer_list>

namespace backplane::cuda {

constexpr c10::DeviceIndex kMostDevices = 64;

// Whether the driver is the CUDA driver, whose streams and memory NVIDIA's libraries use.
bool is_cuda(c10::DeviceIndex device);

// Opens a library by the first of its names that is found: by the loader (LD_LIBRARY_PATH, and libraries that are loaded, as by a CUDA
// build of torch), in CUDA_HOME, CUDA_PATH and /usr/local/cuda, and among pip's packages beside torch. NULL if there is none. It stays
// loaded.
void* open_library(std::initializer_list<const char*> names);

// The functions of an open library, by name.
class Functions {
 public:
  explicit Functions(void* file) : file_(file) {}
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(file_, name));
    are_whole_ = are_whole_ && function != nullptr;
  }
  bool are_whole() const { return are_whole_; }  // all were found so far

 private:
  void* file_;
  bool are_whole_ = true;
};

}  // namespace backplane::cuda
