// drivers/cuda/compiler.h: bp.compiler by NVRTC: "sm_90" gives a cubin for that architecture, "compute_90" gives PTX, which the driver of
// any later GPU compiles.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <backplane/driver/cxx/code.hpp>
#include <backplane/driver/cxx/compiler.hpp>

#include "gpus.h"
#include "nvrtc.h"

namespace backplane::driver::cuda {

class Compiler {
 public:
  /// nvrtc: its path, or empty to look for it at the first use.
  Compiler(const Gpus& gpus, std::string nvrtc) : gpus_(gpus), path_(std::move(nvrtc)) {}

  // As CompilerEntries asks.
  std::string id() const;
  std::vector<bp_target_properties> targets() const;
  /// A cubin where NVRTC makes one, else the newest PTX that the GPU's driver can compile for it.
  bp_target_properties target(int32_t device) const;
  const char* prelude(const char* target) const;
  Compiled compile(const bp_compile_request& request) const;

 private:
  const Nvrtc& nvrtc() const;
  std::vector<int> archs() const;

  const Gpus& gpus_;
  const std::string path_;
  mutable std::once_flag found_;
  mutable std::unique_ptr<Nvrtc> nvrtc_;
};

}  // namespace backplane::driver::cuda
