// drivers/cuda/nvrtc.cpp: the places where NVRTC may be: the loader's own, the toolkit, and the packages of pip.
#include "nvrtc.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace backplane::driver::cuda {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// The folders of Python packages that something in this process was loaded from, such as torch or this driver.
std::set<std::string> package_folders_in_use() {
  std::set<std::string> found;
  const auto note = [](dl_phdr_info* info, size_t, void* arg) {
    for (std::string folder = info->dlpi_name ? info->dlpi_name : ""; !folder.empty(); folder = parent_of(folder)) {
      const std::string name = folder.substr(folder.rfind('/') + 1);
      if (name == "site-packages" || name == "dist-packages") static_cast<std::set<std::string>*>(arg)->insert(folder);
    }
    return 0;
  };
  dl_iterate_phdr(note, &found);
  return found;
}

/// Files that match, the highest version first.
std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> out;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> places() {
  std::vector<std::string> patterns;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* folder = std::getenv(variable)) patterns.push_back(std::string(folder) + "/lib64/libnvrtc.so.1[0-9]");
  }
  patterns.push_back("/usr/local/cuda/lib64/libnvrtc.so.1[0-9]");
  std::vector<std::string> packages;
  for (const std::string& folder : package_folders_in_use()) packages.push_back(folder);
  std::vector<std::string> environments;
  if (const char* folder = std::getenv("VIRTUAL_ENV")) environments.push_back(folder);
  const std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const std::string folder = path.substr(at, end - at);
    if (!matches(folder + "/python3").empty()) environments.push_back(parent_of(folder));
    at = end + 1;
  }
  for (const std::string& folder : environments) packages.push_back(folder + "/lib/python3*/site-packages");
  for (const std::string& folder : packages) {
    patterns.push_back(folder + "/nvidia/cu1[0-9]/lib/libnvrtc.so.1[0-9]");    // nvidia-cuda-nvrtc, from CUDA 13 on
    patterns.push_back(folder + "/nvidia/cuda_nvrtc/lib/libnvrtc.so.1[0-9]");  // nvidia-cuda-nvrtc-cu12
  }
  return patterns;
}

}  // namespace

Nvrtc::Nvrtc(const std::string& path) {
  if (!path.empty()) {
    take(path);
    return;
  }
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    if (take(name)) return;
  }
  for (const std::string& pattern : places()) {
    const auto files = matches(pattern);
    if (files.empty()) looked_for += ", " + pattern;
    for (const std::string& file : files) {
      if (take(file)) return;
    }
  }
}

bool Nvrtc::take(const std::string& name) {
  looked_for += (looked_for.empty() ? "" : ", ") + name;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = name.find('/') == std::string::npos ? nullptr : dlerror();
    if (why) looked_for += std::string(" (") + why + ")";
    return false;
  }
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
