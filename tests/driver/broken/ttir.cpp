// tests/driver/broken/ttir.cpp: defects of the family ttir, over a device that takes TTIR too.
#include <algorithm>

#include "shim.h"

namespace broken {

void add_ttir_defects(Defects& d) {
  // Takes an unknown language for the dialect.
  d["ttir.languages"] = instead<&bp_compiler::compile, [](Shim& s, const bp_compile_request* request, bp_compile_result* out) {
    bp_compile_request known = *request;
    if (BP_LANGUAGE_TTIR < known.language) known.language = BP_LANGUAGE_DIALECT;
    return INNER_GROUP(s.in_compiler, compile, &known, out);
  }>;
  // Lists the pointers first.
  d["ttir.compile"] = after<&bp_compiler::compile, [](Shim& s, int32_t status, const bp_compile_request*, bp_compile_result* out) {
    if (status == ok && out->parameters) {
      s.text = out->parameters;
      std::stable_partition(s.text.begin(), s.text.end(), [](char letter) { return letter == 'p'; });
      out->parameters = s.text.c_str();
    }
    return status;
  }>;
  d["ttir.wrong_source"] = after<&bp_compiler::compile, [](Shim&, int32_t status, const bp_compile_request*, bp_compile_result* out) {
    if (status == BP_INVALID_ARGUMENT) out->log = "the module is wrong";
    return status;
  }>;
  // Leaves out two dimensions of a grid.
  d["ttir.values"] = instead<&bp_module::launch, [](Shim& s, int32_t device, bp_stream* stream, const bp_launch* launch) {
    bp_launch flat = *launch;
    flat.grid[1] = flat.grid[2] = 1;
    return INNER_GROUP(s.in_module, launch, device, stream, &flat);
  }>;
}

}  // namespace broken
