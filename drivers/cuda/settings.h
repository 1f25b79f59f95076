// drivers/cuda/settings.h: the driver's options.
#pragma once

#include <string>

#include <backplane/driver/cxx/options.hpp>

namespace backplane::driver::cuda {

struct Settings {
  std::string libcuda, nvrtc;  // paths in place of what is found; empty: look for it
  std::string nccl;            // the same; "off": none
  bool managed;                // alloc gives memory that the host reaches

  explicit Settings(const char* config) {
    Options options(config);
    libcuda = options.text("libcuda", "", "<path>");
    nvrtc = options.text("nvrtc", "", "<path>");
    nccl = options.text("nccl", "", "<path>|off");
    managed = options.choice("memory", false, {{"device", false}, {"managed", true}});
    options.finish();
  }
};

}  // namespace backplane::driver::cuda
