// drivers/opencl/compiler_entries.h: the entries of bp.compiler. All: any thread; they throw Error.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "compiler.h"
#include "entry.h"

namespace backplane::driver::opencl {

/// For a driver to derive from, with what it knows before a device is used.
class CompilerEntries {
 public:
  void compiler_id(char* out, uint64_t size) {
    need(out, "compiler.id: out");
    if (size == 0) throw Error(BP_INVALID_ARGUMENT, "compiler.id: size must be at least 1");
    const size_t length = std::min<uint64_t>(compiler_.id().size(), size - 1);
    std::memcpy(out, compiler_.id().data(), length);
    out[length] = '\0';
  }
  void compiler_target(int32_t device, bp_target_properties* out) {
    const bp_target_properties full = compiler_.target(device);
    hand_out(out, full, "compiler.target: out");
  }
  void compiler_prelude(const char* target, const char** out) {
    need(out, "compiler.prelude: out");
    *out = compiler_.prelude(target);
  }
  void compiler_compile(const bp_compile_request* request, bp_compile_result* out) {
    need(request, "compiler.compile: request");
    if (!out || out->struct_size < sizeof(bp_compile_result)) {
      throw Error(BP_INVALID_ARGUMENT, "compiler.compile: out, with its struct_size, is needed");
    }
    std::unique_ptr<Compiler::Output> made = compiler_.compile(*request);
    const bool right = !made->code.empty();
    out->code = right ? made->code.data() : nullptr;
    out->bytes = made->code.size();
    out->log = made->log.c_str();
    out->owner = made.get();
    const std::string& log = made.release()->log;
    if (!right) throw Error(BP_INVALID_ARGUMENT, "compiler.compile: " + log.substr(0, 400));  // `out` has the whole log
  }
  void compiler_release(bp_compile_result* result) {
    need(result, "compiler.release: result");
    delete static_cast<Compiler::Output*>(std::exchange(result->owner, nullptr));
    result->code = nullptr;
    result->log = nullptr;
    result->bytes = 0;
  }

 protected:
  explicit CompilerEntries(const char* options) : settings_(options), survey_(take_survey(settings_)), compiler_(survey_, settings_) {}
  ~CompilerEntries() = default;

  const Settings settings_;
  const Survey survey_;
  Compiler compiler_;
};

}  // namespace backplane::driver::opencl
