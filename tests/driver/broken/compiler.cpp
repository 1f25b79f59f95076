// tests/driver/broken/compiler.cpp: defects of the family compiler.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

namespace broken {

void add_compiler_defects(Defects& d) {
  // A time goes into it.
  d["compiler.id"] = instead<&bp_compiler::id, [](Shim& s, char* out, uint64_t size) {
    snprintf(out, size, "compiler 1.0, call %d", ++s.calls);
    return ok;
  }>;
  d["compiler.target"] = after<&bp_compiler::target, [](Shim& s, int32_t status, int32_t device, bp_target_properties* out) {
    if (status == ok && out->struct_size == sizeof *out) out->group_size = 3;
    return status;
  }>;
  // Each number has a target.
  d["compiler.list"] = instead<&bp_compiler::target, [](Shim& s, int32_t device, bp_target_properties* out) {
    return INNER_GROUP(s.in_compiler, target, device < 0 ? -1 : device, out);
  }>;
  // Takes any target for the first one.
  d["compiler.prelude"] = instead<&bp_compiler::prelude, [](Shim& s, const char*, const char** out) {
    bp_target_properties first{};
    first.struct_size = sizeof first;
    INNER_GROUP(s.in_compiler, target, 0, &first);
    return INNER_GROUP(s.in_compiler, prelude, first.target, out);
  }>;
  d["compiler.compile"] = instead<&bp_compiler::compile, [](Shim& s, const bp_compile_request* request, bp_compile_result* out) {
    if (request->flags & BP_COMPILE_LIGHT) return int32_t{BP_INVALID_ARGUMENT};
    return INNER_GROUP(s.in_compiler, compile, request, out);
  }>;
  d["compiler.wrong_source"] =
      after<&bp_compiler::compile, [](Shim& s, int32_t status, const bp_compile_request* request, bp_compile_result* out) {
        if (status == BP_INVALID_ARGUMENT) out->log = "the source is wrong";
        return status;
      }>;
  d["compiler.invalid"] = instead<&bp_compiler::compile, [](Shim& s, const bp_compile_request* request, bp_compile_result* out) {
    bp_compile_request known = *request;
    known.flags &= BP_COMPILE_DEBUG | BP_COMPILE_FAST_MATH | BP_COMPILE_LIGHT;
    return INNER_GROUP(s.in_compiler, compile, &known, out);
  }>;
  d["compiler.threads"] = instead<&bp_compiler::compile, [](Shim& s, const bp_compile_request* request, bp_compile_result* out) {
    if (s.inside.exchange(true)) return int32_t{BP_INTERNAL};
    const int32_t status = INNER_GROUP(s.in_compiler, compile, request, out);
    s.inside = false;
    return status;
  }>;
  d["compiler.forked"] = [](Shim& s) {
    s.address = static_cast<uint64_t>(getpid());
    s.compiler.compile = [](void* self, const bp_compile_request* request, bp_compile_result* out) {
      if (of(self).address != static_cast<uint64_t>(getpid())) return int32_t{BP_INTERNAL};
      return INNER_GROUP(of(self).in_compiler, compile, request, out);
    };
  };
}

}  // namespace broken
