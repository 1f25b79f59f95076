// drivers/sim/module.h: bp.module on the simulated device: compiled code in this process, and how a kernel of it runs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <backplane/driver/cxx/kernels.hpp>

#include "fibers.h"
#include "prelude.h"

namespace backplane::driver::sim {

/// A kernel of a loaded module; what a bp_function is here.
class Kernel {
 public:
  Kernel(int32_t device, const char* name, const KernelEntry& entry, uint32_t items, Order order);

  int32_t device() const { return limits.device; }
  const char* name() const { return name_.c_str(); }
  const KernelEntry& entry() const { return entry_; }
  uint32_t pointers() const { return entry_.pointers; }
  uint32_t group() const { return entry_.group; }

  const LaunchLimits limits;

  /// Runs the whole grid on the calling thread. args: the pointers are the host's. Throws what makes the device fault.
  void run(const uint64_t* args, const uint32_t* grid) const;

 private:
  const std::string name_;
  const KernelEntry& entry_;
  const Order order_;
};

/// A shared object of kernels; what a bp_module_code is here.
class Module {
 public:
  /// items: as many a group of this device may have.
  Module(int32_t device, std::string_view object, uint32_t items, Order order);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const int32_t device;
  /// The kernel of that name. Throws if there is none, or it takes other arguments.
  Kernel& kernel(const char* name, const bp_signature& signature);

 private:
  const uint32_t items_;
  const Order order_;
  void* library_ = nullptr;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace backplane::driver::sim
