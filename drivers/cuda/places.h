// drivers/cuda/places.h: where NVIDIA's libraries may be: the loader's own places, the toolkit, and the packages of pip.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace backplane::driver::cuda {

/// What to look for, as patterns of glob.
struct Places {
  std::vector<std::string> names;     // that the loader knows: "libnvrtc.so.12"
  std::vector<std::string> toolkit;   // below CUDA_HOME, CUDA_PATH and /usr/local/cuda: "lib64/libnvrtc.so.1[0-9]"
  std::vector<std::string> packages;  // below a folder of Python packages: "nvidia/nccl/lib/libnccl.so.2"
};

/// Calls take(file) until it is true. What was looked for and not there is added to `looked_for`, separated by commas; of a file that is
/// there take() adds what it finds.
bool look_for(const Places& places, std::string& looked_for, const std::function<bool(const std::string&)>& take);

/// dlopen; what was tried, and why it failed, is added to `looked_for`. NULL if it cannot be loaded.
void* load_library(const std::string& name, std::string& looked_for);

}  // namespace backplane::driver::cuda
