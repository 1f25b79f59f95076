// tests/driver/broken/compiler.cpp: defects of the family compiler.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

namespace broken {
namespace {

constexpr int32_t ok = BP_OK;

}  // namespace

void add_compiler_defects(Defects& d) {
  d["compiler.id"] = [](Shim& s) {
    // A time goes into it.
    s.compiler.id = [](void* self, char* out, uint64_t size) {
      snprintf(out, size, "compiler 1.0, call %d", ++of(self).calls);
      return ok;
    };
  };
  d["compiler.target"] = [](Shim& s) {
    s.compiler.target = [](void* self, int32_t device, bp_target_properties* out) {
      const int32_t status = INNER_GROUP(of(self).in_compiler, target, device, out);
      if (status == ok && out->struct_size == sizeof *out) out->group_size = 3;
      return status;
    };
  };
  d["compiler.list"] = [](Shim& s) {
    // Each number has a target.
    s.compiler.target = [](void* self, int32_t device, bp_target_properties* out) {
      return INNER_GROUP(of(self).in_compiler, target, device < 0 ? -1 : device, out);
    };
  };
  d["compiler.prelude"] = [](Shim& s) {
    // Takes any target for the first one.
    s.compiler.prelude = [](void* self, const char*, const char** out) {
      bp_target_properties first{};
      first.struct_size = sizeof first;
      INNER_GROUP(of(self).in_compiler, target, 0, &first);
      return INNER_GROUP(of(self).in_compiler, prelude, first.target, out);
    };
  };
  d["compiler.compile"] = [](Shim& s) {
    s.compiler.compile = [](void* self, const bp_compile_request* request, bp_compile_result* out) {
      if (request->flags & BP_COMPILE_LIGHT) return int32_t{BP_INVALID_ARGUMENT};
      return INNER_GROUP(of(self).in_compiler, compile, request, out);
    };
  };
  d["compiler.wrong_source"] = [](Shim& s) {
    s.compiler.compile = [](void* self, const bp_compile_request* request, bp_compile_result* out) {
      const int32_t status = INNER_GROUP(of(self).in_compiler, compile, request, out);
      if (status == BP_INVALID_ARGUMENT) out->log = "the source is wrong";
      return status;
    };
  };
  d["compiler.invalid"] = [](Shim& s) {
    s.compiler.compile = [](void* self, const bp_compile_request* request, bp_compile_result* out) {
      bp_compile_request known = *request;
      known.flags &= BP_COMPILE_DEBUG | BP_COMPILE_FAST_MATH | BP_COMPILE_LIGHT;
      return INNER_GROUP(of(self).in_compiler, compile, &known, out);
    };
  };
  d["compiler.threads"] = [](Shim& s) {
    s.compiler.compile = [](void* self, const bp_compile_request* request, bp_compile_result* out) {
      if (of(self).inside.exchange(true)) return int32_t{BP_INTERNAL};
      const int32_t status = INNER_GROUP(of(self).in_compiler, compile, request, out);
      of(self).inside = false;
      return status;
    };
  };
  d["compiler.forked"] = [](Shim& s) {
    s.address = static_cast<uint64_t>(getpid());
    s.compiler.compile = [](void* self, const bp_compile_request* request, bp_compile_result* out) {
      if (of(self).address != static_cast<uint64_t>(getpid())) return int32_t{BP_INTERNAL};
      return INNER_GROUP(of(self).in_compiler, compile, request, out);
    };
  };
}

}  // namespace broken
