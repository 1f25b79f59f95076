// drivers/opencl/module.h: bp.module: programs made of binaries, and launches, whose block of bytes becomes arguments of a kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <backplane/driver/cxx/kernels.hpp>

#include "memory.h"

namespace backplane::driver::opencl {

/// A kernel; what a bp_function is here. A kernel object of OpenCL holds one set of arguments, so launches of it take turns.
class Kernel {
 public:
  Kernel(Device& device, cl_program program, const char* name, const bp_signature& signature);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  LaunchLimits limits() const;
  bool has(const bp_signature& signature) const { return signature.pointers == pointers_ && signature.value_bytes == value_bytes_; }
  const std::string& name() const { return name_; }
  bp_function_properties properties() const { return {0, static_cast<uint32_t>(max_group_), static_cast<uint32_t>(local_bytes_), 0, 0}; }
  /// Of a launch that was checked.
  void launch(Queue& queue, const Memory& memory, const bp_launch& launch);
  /// The same, later and any number of times, with the arguments that are there now.
  std::function<void(Queue& on)> recorded(const Memory& memory, const bp_launch& launch);

 private:
  void set_arguments(const Memory& memory, const void* args);

  Device& device_;
  const std::string name_;
  const uint32_t pointers_, value_bytes_;
  const bool takes_offsets_;
  cl_kernel kernel_ = nullptr;
  size_t group_[3] = {};  // as compiled
  cl_ulong local_bytes_ = 0;
  size_t max_group_ = 0;
  std::mutex mutex_;
};

/// A program of one device; what a bp_module_code is here.
class Module {
 public:
  Module(Device& device, std::string_view binary);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const int32_t device;
  Kernel& kernel(const char* name, const bp_signature& signature);

 private:
  Device& on_;
  cl_program program_ = nullptr;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace backplane::driver::opencl
