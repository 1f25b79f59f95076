// drivers/cuda/nvrtc.h: NVRTC, NVIDIA's compiler as a library, wherever it is installed. It needs neither a GPU nor libcuda.
#pragma once

#include <string>
#include <vector>

#include "cuda_api.h"

namespace backplane::driver::cuda {

/// A loaded NVRTC, or what was looked for. Stays loaded.
struct Nvrtc {
  /// path: empty to look for it.
  explicit Nvrtc(const std::string& path);

  bool present = false;
  std::string looked_for;
  std::string version;     // "12.9, 103784504 bytes": also distinguishes builds of one version
  std::vector<int> archs;  // that it makes code for: 80 is compute capability 8.0; ascending

#define BP_MEMBER(name, ...) nvrtcResult (*name)(__VA_ARGS__) = nullptr;
  BP_NVRTC_FUNCTIONS(BP_MEMBER)
#undef BP_MEMBER

 private:
  bool take(const std::string& name);
};

}  // namespace backplane::driver::cuda
