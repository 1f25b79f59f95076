// drivers/vulkan/compiler.h: bp.compiler: the dialect becomes SPIR-V (drivers/spirv), in this process and without a device.
#pragma once

#include <string>
#include <vector>

#include <backplane/driver/cxx/code.hpp>
#include <backplane/driver/cxx/compiler.hpp>

#include "../spirv/spirv.h"
#include "survey.h"

namespace backplane::driver::vulkan {

class Compiler {
 public:
  Compiler(const Survey& survey, const Settings& settings);

  // As CompilerEntries asks.
  const std::string& id() const { return id_; }
  std::vector<bp_target_properties> targets() const;
  bp_target_properties target(int32_t device) const;
  const char* prelude(const char*) const { return prelude_.c_str(); }
  Compiled compile(const bp_compile_request& request) const;

 private:
  bp_target_properties target(const DeviceInfo& info) const;

  const Survey& survey_;
  const Settings& settings_;
  const std::string prelude_;
  std::string id_;
};

/// The image of code: what compile() gives and module.load() takes.
std::string pack_module(const spirv::Module& module);
spirv::Module unpack_module(std::string_view image);

}  // namespace backplane::driver::vulkan
