// drivers/cuda/module.h: bp.module of one GPU: CUDA's modules and functions, and launches whose arguments are one block of bytes.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <backplane/driver/cxx/kernels.hpp>

#include "device.h"

namespace backplane::driver::cuda {

class Modules {
 public:
  Modules(const Library& cuda, Device& device);

  /// The caller has made the device's context current; for all that follows, too. id: of the compiler whose code is taken.
  bp_module_code* load(std::string_view code, const std::string& id);
  void unload(bp_module_code* module);
  bp_function* function(bp_module_code* module, const char* name, const bp_signature* signature, bp_function_properties& properties);
  void launch(int32_t device, const bp_launch* launch, CUstream stream);

 private:
  struct Function {
    CUfunction native;
    LaunchLimits limits;
    size_t native_bytes;   // of a launch's arguments, what the kernel reads
    uint32_t local_bytes;  // of its own
  };
  struct Module {
    CUmodule native;
    std::mutex mutex;
    std::vector<std::unique_ptr<Function>> functions;
  };

  void check_target(const std::string& target) const;
  int attribute(CUfunction function, FunctionAttribute which);
  size_t check_parameters(CUfunction function, const char* name, const bp_signature& signature);
  void allow_local(const Function& function, uint32_t bytes);

  const Library& cuda_;
  Device& device_;
  LiveHandles<Module*> live_;
};

}  // namespace backplane::driver::cuda
