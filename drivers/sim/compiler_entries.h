// drivers/sim/compiler_entries.h: the entries of bp.compiler.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include <backplane/driver/compiler.h>

#include "compiler.h"
#include "devices.h"

namespace backplane::driver::sim {

class CompilerEntries : public virtual Devices {
 public:
  explicit CompilerEntries(const Host& host) : Devices(host), compiler_(host, settings_.compiler, settings_.items) {}

  void compiler_id(char* out, uint64_t size) {
    need(out && size, "compiler.id: out and size");
    std::snprintf(out, size, "%s", compiler_.id().c_str());
  }
  void compiler_target(int32_t device, bp_target_properties* out) {
    const auto targets = all_targets();
    const int64_t index = -1 - int64_t{device};
    if (index >= static_cast<int64_t>(targets.size())) {
      throw Error(BP_INVALID_DEVICE, format("compiler.target: no target %d: there are %zu", device, targets.size()));
    }
    if (index < 0) check_index(device);
    hand_out(out, properties_of(index < 0 ? *settings_.target : targets[static_cast<size_t>(index)], settings_.items, settings_.float64),
             "compiler.target: out");
  }
  void compiler_prelude(const char* target, const char** out) {
    need(out, "compiler.prelude: out");
    *out = compiler_.prelude_of(target);
  }
  void compiler_compile(const bp_compile_request* request, bp_compile_result* out) {
    need(request && out, "compiler.compile: request and out");
    bp_compile_result result{};
    auto output = compiler_.compile(*request);
    result.code = output->code.empty() ? nullptr : output->code.data();
    result.bytes = output->code.size();
    result.log = output->log.c_str();
    result.owner = output.get();
    hand_out(out, result, "compiler.compile: out");
    const bool right = result.code != nullptr;
    const std::string& log = output.release()->log;  // the caller's now
    if (!right) throw Error(BP_INVALID_ARGUMENT, "compiler.compile: " + first_error(log));
  }
  void compiler_release(bp_compile_result* result) {
    need(result && result->owner, "compiler.release: result and its owner");
    delete static_cast<Compiler::Output*>(result->owner);
    result->code = nullptr;
    result->bytes = 0;
    result->log = nullptr;
    result->owner = nullptr;
  }

 protected:
  const Compiler compiler_;
};

}  // namespace backplane::driver::sim
