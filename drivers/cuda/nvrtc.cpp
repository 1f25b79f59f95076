// drivers/cuda/nvrtc.cpp: NVRTC's symbols and what it makes code for.
#include "nvrtc.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>

#include "places.h"

namespace backplane::driver::cuda {

Nvrtc::Nvrtc(const std::string& path) {
  if (!path.empty()) {
    take(path);
    return;
  }
  const Places places = {{"libnvrtc.so.13", "libnvrtc.so.12"},
                         {"lib64/libnvrtc.so.1[0-9]"},
                         {"nvidia/cu1[0-9]/lib/libnvrtc.so.1[0-9]",      // nvidia-cuda-nvrtc, from CUDA 13 on
                          "nvidia/cuda_nvrtc/lib/libnvrtc.so.1[0-9]"}};  // nvidia-cuda-nvrtc-cu12
  look_for(places, looked_for, [&](const std::string& file) { return take(file); });
}

bool Nvrtc::take(const std::string& name) {
  void* library = load_library(name, looked_for);
  if (!library) return false;
  const char* absent = nullptr;
#define BP_RESOLVE(name, ...)                                                   \
  name = reinterpret_cast<nvrtcResult (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (!name) absent = #name;
  BP_NVRTC_FUNCTIONS(BP_RESOLVE)
#undef BP_RESOLVE
  int major = 0, minor = 0, count = 0;
  if (absent || nvrtcVersion(&major, &minor) != NVRTC_SUCCESS || nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS) {
    looked_for += std::string(" (it has no ") + (absent ? absent : "version") + ")";
    return false;
  }
  archs.resize(static_cast<size_t>(count));
  nvrtcGetSupportedArchs(archs.data());
  std::sort(archs.begin(), archs.end());
  Dl_info place{};
  struct stat file{};
  const bool known = dladdr(reinterpret_cast<void*>(nvrtcVersion), &place) != 0 && stat(place.dli_fname, &file) == 0;
  version = std::to_string(major) + "." + std::to_string(minor) + (known ? ", " + std::to_string(file.st_size) + " bytes" : "");
  present = true;
  return true;
}

}  // namespace backplane::driver::cuda
