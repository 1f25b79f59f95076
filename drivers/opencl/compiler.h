// drivers/opencl/compiler.h: bp.compiler by clBuildProgram: targets from the survey, one compilation at a time, the program's binary as
// code.
//
// OpenCL compiles for a device of a context. That context is this file's own, made by the first compilation in a process: so it works
// before open, and in a forked child, which makes another. A fork waits for the compilation at work, so that a child never inherits the
// runtime's compiler locked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <backplane/driver/cxx/code.hpp>
#include <backplane/driver/cxx/compiler.hpp>

#include "survey.h"

namespace backplane::driver::opencl {

/// Held while a program is built, by compile and by load; a fork waits for it.
class BuildLock {
 public:
  BuildLock();
  ~BuildLock();
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;
};

/// What went wrong in clBuildProgram; "" if nothing.
std::string build_log(const Api& api, cl_program program, cl_device_id device);

class Compiler {
 public:
  Compiler(const Survey& survey, const Settings& settings);
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  // As CompilerEntries asks.
  const std::string& id() const { return id_; }
  std::vector<bp_target_properties> targets() const;
  bp_target_properties target(int32_t device) const;
  const char* prelude(const char*) const { return prelude_.c_str(); }
  Compiled compile(const bp_compile_request& request);

 private:
  struct Workplace;  // context and device of one target, in one process
  bp_target_properties target(const DeviceInfo& info) const;
  Workplace& workplace(const DeviceInfo& info);

  const Survey& survey_;
  const Settings& settings_;
  const std::string prelude_;
  std::string id_;
  std::vector<std::unique_ptr<Workplace>> workplaces_;  // under BuildLock
};

/// Items of a group that kernels on this device should have, and may have.
uint32_t preferred_items(const DeviceInfo& info, const Settings& settings);

}  // namespace backplane::driver::opencl
