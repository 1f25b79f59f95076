// drivers/vulkan/module.h: bp.module: SPIR-V, pipelines of its kernels, and launches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <backplane/driver/cxx/kernels.hpp>

#include "../spirv/spirv.h"
#include "memory.h"
#include "pipelines.h"

namespace backplane::driver::vulkan {

/// A kernel; what a bp_function is here.
class Kernel {
 public:
  /// words: of its module.
  Kernel(Device& device, const std::vector<uint32_t>& words, const spirv::Entry& entry);

  const std::string& name() const { return entry_.name; }
  const LaunchLimits& limits() const { return limits_; }
  bp_function_properties properties() const { return {0, entry_.group, entry_.local_bytes, 0, 0}; }
  /// Of a launch that was checked.
  void record(Commands& commands, const uint32_t (&grid)[3], const void* args) const;
  /// The same, later and any number of times, with the arguments that are there now.
  std::function<void(Commands& commands)> recorded(const bp_launch& launch) const;

 private:
  Device& device_;
  const spirv::Entry entry_;
  const LaunchLimits limits_;
  const std::unique_ptr<Pipeline> pipeline_;
};

/// Code on a device; what a bp_module_code is here.
class Module {
 public:
  Module(Device& device, std::string_view image);

  const int32_t device;
  Kernel& kernel(const char* name, const bp_signature& signature);

 private:
  Device& on_;
  const spirv::Module code_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Kernel>> kernels_;  // of each entry; NULL until it is asked for
};

}  // namespace backplane::driver::vulkan
