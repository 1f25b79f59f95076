// tests/driver/shims_modules_test/stacks.h: the shims over the inner driver in shims_modules_test.cpp, and an instance of it with
// shorter names.
#pragma once

#include "inner.h"

namespace {

const bp_driver* own_streams(const char* config) { return get(bp_emulate_get, config, with_groups(0, Group::events)); }
const bp_driver* own_streams_locked(const char* config) {
  return get(bp_emulate_get, config, with_groups(BP_DRIVER_SERIALIZE, Group::events));
}
const bp_driver* locked(const char*) { return get(bp_emulate_get, "", with_groups(BP_DRIVER_SERIALIZE)); }
const bp_driver* passing(const char*) { return get(bp_emulate_get, "", with_groups(0, Group::pinned)); }
const bp_driver* faulty(const char* faults) { return get(bp_fault_get, faults, with_groups()); }
using Make = const bp_driver* (*)(const char*);

constexpr bp_signature kSignature = {sizeof(bp_signature), 1, 16, 1};

/// The two groups of an instance, and shorter names.
struct Groups : Instance {
  bp_compiler compiler;
  bp_module module;

  explicit Groups(const bp_driver* driver)
      : Instance(driver), compiler(*find_group<bp_compiler>(*driver)), module(*find_group<bp_module>(*driver)) {}

  int32_t load(const char* code, bp_module_code** out, int32_t device = 0) {
    return module.load(module.head.self, device, code, std::strlen(code), out);
  }
  bp_module_code* loaded(const char* code, int32_t device = 0) {
    bp_module_code* out = nullptr;
    OK(load(code, &out, device));
    return out;
  }
  int32_t unload(bp_module_code* code, int32_t device = 0) { return module.unload(module.head.self, device, code); }
  bp_function* function(bp_module_code* code, const char* name, int32_t device = 0) {
    bp_function* out = nullptr;
    OK(module.function(module.head.self, device, code, name, &kSignature, &out, nullptr));
    return out;
  }
  int32_t launch(bp_stream* stream, const bp_launch& one, int32_t device = 0) {
    return module.launch(module.head.self, device, stream, &one);
  }
  int32_t compile(const char* source, bp_compile_result* out) {
    const bp_compile_request request = {sizeof request, "names", source, source, "", 0, 0, nullptr, 0, 0};
    *out = sized<bp_compile_result>();
    return compiler.compile(compiler.head.self, &request, out);
  }
  uint64_t word(uint64_t address) {
    uint64_t out = 0;
    std::memcpy(&out, take(address, sizeof out).data(), sizeof out);
    return out;
  }
  bool says(const char* words) { return error().find(words) != std::string::npos; }
};

bp_launch launch_of(bp_function* function, const Arguments& with) {
  return {sizeof(bp_launch), function, {1, 1, 1}, {1, 1, 1}, 0, 0, &with, sizeof with};
}

}  // namespace
