// kernels/cuda/library.cpp: looks for NVIDIA's libraries.
#include "library.h"

#include <backplane/driver/vendor/cuda.h>
#include <backplane/kernel.h>
#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace backplane::cuda {
namespace {

/// Patterns of folders, as glob() takes them.
std::vector<std::string> folders() {
  std::vector<std::string> found;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* folder = std::getenv(variable)) found.push_back(std::string(folder) + "/lib64/");
  }
  found.emplace_back("/usr/local/cuda/lib64/");
  Dl_info torch{};
  if (dladdr(reinterpret_cast<const void*>(static_cast<std::string (*)(c10::DeviceType, bool)>(&c10::DeviceTypeName)), &torch) != 0) {
    const std::string file = torch.dli_fname;  // <packages>/torch/lib/libc10.so
    const size_t at = file.rfind("/torch/lib/");
    if (at != std::string::npos) found.push_back(file.substr(0, at) + "/nvidia/*/lib/");
  }
  return found;
}

void* open_first(const std::string& pattern) {
  glob_t files{};
  void* library = nullptr;
  if (glob(pattern.c_str(), 0, nullptr, &files) == 0) {
    for (size_t i = 0; i < files.gl_pathc && !library; ++i) library = dlopen(files.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
  }
  globfree(&files);
  return library;
}

}  // namespace

bool is_cuda(c10::DeviceIndex device) { return device < kMostDevices && driver_group<bp_cuda>(BP_CUDA_ID, BP_CUDA_VERSION); }

void* open_library(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  for (const std::string& folder : folders()) {
    for (const char* name : names) {
      if (void* library = open_first(folder + name)) return library;
    }
  }
  return nullptr;
}

}  // namespace backplane::cuda
