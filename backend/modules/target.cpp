// modules/target.cpp: queries bp.compiler once, and checks its answer.
#include "modules/target.h"

#include <c10/util/StringUtil.h>
#include <backplane/driver/cxx/compiler.hpp>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"

namespace backplane {
namespace target_impl {
namespace {

constexpr uint32_t kUnasked = 1u << 31;
std::atomic<uint32_t> known{kUnasked};  // bit 1 << language

std::string compiler_id(const bp_compiler& compiler) {
  std::array<char, 1024> text{};
  const int32_t status = compiler.id(compiler.head.self, text.data(), text.size());
  if (status != BP_OK) throw_status(status, "bp.compiler.id", -1, last_error_text());
  text.back() = '\0';
  return text.data();
}

void check(const bp_target_properties& target) {
  const auto want = [&](bool holds, const char* rule) {
    TORCH_CHECK(holds, "The driver of ", device_name(), " describes the target '", target.target, "' wrongly: ", rule,
                " (backplane/driver/compiler.h). Run torch-backplane check-driver for details");
  };
  constexpr uint64_t required = BP_DTYPE_FLOAT32 | BP_DTYPE_INT32 | BP_DTYPE_INT64;
  want((target.dtypes & required) == required, "dtypes do not include FLOAT32, INT32 or INT64");
  want(target.group_size != 0 && (target.group_size & (target.group_size - 1)) == 0, "group_size is not a power of two");
  want(target.group_size <= target.max_group_size, "group_size is greater than max_group_size");
  want(target.local_bytes >= 16384, "local_bytes is less than 16384");
  want(target.parameter_bytes >= 1024, "parameter_bytes is less than 1024");
  for (const uint64_t groups : target.max_grid) want(groups >= 65535, "max_grid is less than 65535");
}

// Of the first device; any language if that fails: the error is raised where the target is needed.
uint32_t languages_of(const bp_compiler& compiler) {
  bp_target_properties properties{};
  properties.struct_size = sizeof properties;
  if (compiler.target(compiler.head.self, 0, &properties) != BP_OK) return 1u << BP_LANGUAGE_DIALECT;
  uint32_t found = 0;
  for (const uint32_t language : {BP_LANGUAGE_DIALECT, BP_LANGUAGE_TTIR}) {
    if (driver::supports(properties, language)) found |= 1u << language;
  }
  return found;
}

Target complete(const bp_compiler& compiler, bp_target_properties properties) {
  properties.target[sizeof properties.target - 1] = '\0';
  check(properties);
  const char* prelude = "";
  if (!driver::supports(properties, BP_LANGUAGE_DIALECT)) return {properties, compiler_id(compiler), prelude};
  const int32_t status = compiler.prelude(compiler.head.self, properties.target, &prelude);
  if (status != BP_OK) throw_status(status, "bp.compiler.prelude", -1, last_error_text());
  return {properties, compiler_id(compiler), prelude};
}

Target ask(c10::DeviceIndex device) {
  bp_target_properties properties{};
  properties.struct_size = sizeof properties;
  call<&bp_compiler::target>(device, &properties);
  return complete(*open_driver().compiler, properties);
}

// Calls function(properties) for each target of the compiler, until it returns true.
template <typename Function>
void each_target(const Function& function) {
  const Driver* driver = loaded_driver();
  if (driver == nullptr || driver->compiler == nullptr) return;
  for (int32_t number = -1;; --number) {
    bp_target_properties properties{};
    properties.struct_size = sizeof properties;
    if (driver->compiler->target(driver->compiler->head.self, number, &properties) != BP_OK || function(properties)) return;
  }
}

}  // namespace
}  // namespace target_impl

bool can_compile(uint32_t language) {
  using namespace target_impl;
  uint32_t now = known.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(now == kUnasked)) {
    const Driver& driver = open_driver();
    now = driver.compiler != nullptr && driver.module != nullptr ? languages_of(*driver.compiler) : 0;
    known.store(now, std::memory_order_relaxed);
  }
  return (now >> language & 1) != 0;
}

const Target& target_of(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::array<std::atomic<const Target*>, kMaxDevices> targets{};  // never freed
  const auto index = static_cast<size_t>(device < 0 ? current_device() : device);
  if (const Target* known = targets.at(index).load(std::memory_order_acquire)) return *known;
  TORCH_CHECK(can_compile() || can_compile(BP_LANGUAGE_TTIR), "The driver of ", device_name(),
              " compiles no kernels: it has no bp.compiler, or no bp.module");
  const std::lock_guard<std::mutex> lock(mutex);
  if (targets.at(index) == nullptr) targets.at(index) = new Target(target_impl::ask(static_cast<c10::DeviceIndex>(index)));
  return *targets.at(index);
}

std::vector<std::string> all_targets() {
  std::vector<std::string> names;
  target_impl::each_target([&](bp_target_properties& found) {
    found.target[sizeof found.target - 1] = '\0';
    names.emplace_back(found.target);
    return false;
  });
  return names;
}

Target target_named(const std::string& name) {
  std::optional<Target> target;
  target_impl::each_target([&](const bp_target_properties& found) {
    if (name == found.target) target = target_impl::complete(*loaded_driver()->compiler, found);
    return target.has_value();
  });
  TORCH_CHECK(target, "The compiler of ", device_name(), " has no target '", name, "'; it has: ", c10::Join(", ", all_targets()));
  return *target;
}

}  // namespace backplane
