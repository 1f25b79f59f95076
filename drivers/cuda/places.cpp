// drivers/cuda/places.cpp: see places.h.
#include "places.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "../engine/packages.h"

namespace backplane::driver::cuda {
namespace {

std::vector<std::string> patterns_of(const Places& places) {
  std::vector<std::string> patterns;
  for (const std::string& below : places.toolkit) {
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
      if (const char* folder = std::getenv(variable)) patterns.push_back(std::string(folder) + "/" + below);
    }
    patterns.push_back("/usr/local/cuda/" + below);
  }
  std::vector<std::string> packages = package_folders_in_use();
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
    for (const std::string& below : places.packages) patterns.push_back(folder + "/" + below);
  }
  return patterns;
}

}  // namespace

bool look_for(const Places& places, std::string& looked_for, const std::function<bool(const std::string&)>& take) {
  for (const std::string& name : places.names) {
    if (take(name)) return true;
  }
  for (const std::string& pattern : patterns_of(places)) {
    const auto files = matches(pattern);
    if (files.empty()) looked_for += ", " + pattern;
    for (const std::string& file : files) {
      if (take(file)) return true;
    }
  }
  return false;
}

void* load_library(const std::string& name, std::string& looked_for) {
  looked_for += (looked_for.empty() ? "" : ", ") + name;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = name.find('/') == std::string::npos ? nullptr : dlerror();
    if (why) looked_for += std::string(" (") + why + ")";
  }
  return library;
}

}  // namespace backplane::driver::cuda
