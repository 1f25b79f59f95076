// tests/driver/printed_shim.cpp: a shim whose compiler reads each unit of the dialect into the tree of drivers/spirv, prints it again, and
// has the inner driver compile that. So a whole backend tests what the tree says, on any device with a compiler.
#include <cstdio>
#include <cstring>
#include <string>

#include <backplane/driver.h>
#include <backplane/driver/compiler.h>

#include "../../drivers/spirv/print_c.h"

namespace {

using namespace backplane::driver;

const bp_driver* inner = nullptr;
bp_driver table;
const bp_compiler* compiler = nullptr;
bp_compiler printed;
thread_local std::string log_of_thread;

int32_t id(void* self, char* out, uint64_t size) {
  const int32_t status = compiler->id(self, out, size);
  if (status == BP_OK) {
    const std::string text = std::string("printed ") + out;
    std::snprintf(out, size, "%s", text.c_str());
  }
  return status;
}

int32_t prelude(void*, const char*, const char** out) {
  static const std::string text = spirv::prelude();
  *out = text.c_str();
  return BP_OK;
}

int32_t compile(void* self, const bp_compile_request* request, bp_compile_result* out) {
  if (request->language != BP_LANGUAGE_DIALECT) return compiler->compile(self, request, out);
  const char* words = nullptr;
  if (const int32_t status = compiler->prelude(self, request->target, &words)) return status;
  std::string text;
  try {
    spirv::Options options;
    options.name = request->name;
    const spirv::Unit unit = spirv::parse(request->source, spirv::facts_of_printed(), options);
    text = "#define BP_GROUP " + std::to_string(unit.group) + "\n#define BP_HAS_F64 1\n#define BP_VECTOR_BYTES 16\n" + words +
           spirv::print_c(unit);
  } catch (const spirv::Error& error) {
    log_of_thread = error.what();
    out->code = nullptr;
    out->bytes = 0;
    out->log = log_of_thread.c_str();
    out->owner = nullptr;
    return BP_INVALID_ARGUMENT;
  }
  bp_compile_request other = *request;
  other.source = text.c_str();
  return compiler->compile(self, &other, out);
}

int32_t release(void* self, bp_compile_result* result) {
  return result->log == log_of_thread.c_str() ? BP_OK : compiler->release(self, result);
}

int32_t query_ext(void* self, const char* name, uint32_t version, const bp_ext** out) {
  const int32_t status = inner->query_ext(self, name, version, out);
  if (status != BP_OK || std::strcmp(name, BP_COMPILER_ID) != 0) return status;
  compiler = reinterpret_cast<const bp_compiler*>(*out);
  printed = *compiler;
  printed.id = id;
  printed.prelude = prelude;
  printed.compile = compile;
  printed.release = release;
  *out = &printed.head;
  return BP_OK;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  inner = host->inner;
  if (!inner) return BP_INVALID_ARGUMENT;
  std::memset(&table, 0, sizeof table);
  std::memcpy(&table, inner, inner->struct_size < sizeof table ? inner->struct_size : sizeof table);
  table.query_ext = query_ext;
  *out = &table;
  return BP_OK;
}
