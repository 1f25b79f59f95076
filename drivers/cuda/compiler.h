// drivers/cuda/compiler.h: bp.compiler by NVRTC: "sm_90" gives a cubin for that architecture, "compute_90" gives PTX, which the driver of
// any later GPU compiles.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <backplane/driver/compiler.h>

#include "device.h"
#include "nvrtc.h"

namespace backplane::driver::cuda {

class Compiler {
 public:
  /// nvrtc: its path, or empty to look for it at the first use.
  explicit Compiler(std::string nvrtc) : path_(std::move(nvrtc)) {}

  std::string id() const;
  /// The n-th target. Throws Error(BP_INVALID_DEVICE) behind the last one.
  bp_target_properties listed(int64_t n) const;
  /// A cubin where NVRTC makes one, else the newest PTX that the GPU's driver can compile for it.
  bp_target_properties of_device(const Device& device) const;
  const char* prelude_of(const char* target) const;

  struct Output {
    std::string code;  // empty if the source is wrong
    std::string log;
  };
  std::unique_ptr<Output> compile(const bp_compile_request& request) const;

 private:
  const Nvrtc& nvrtc() const;
  std::vector<int> archs() const;
  void check_target(const char* name) const;

  const std::string path_;
  mutable std::once_flag found_;
  mutable std::unique_ptr<Nvrtc> nvrtc_;
};

/// The first line of a log that tells of an error.
std::string first_error(const std::string& log);

}  // namespace backplane::driver::cuda
