// backplane/driver/cxx/compiler.hpp: bp.compiler over a class that compiles: arguments are checked, and results handed over and taken back.
//
//     struct AcmeCompiler {
//       std::string id() const;                                      // compiler, version, flags and prelude
//       std::vector<bp_target_properties> targets() const;           // all that it can make
//       bp_target_properties target(int32_t device) const;           // a device's; it throws for no device
//       const char* prelude(const std::string& target) const;        // of one of these
//       Compiled compile(const bp_compile_request& request) const;   // in a language of its target; throws, unless the source is wrong
//     };
//     AcmeCompiler compiler_;
//     CompilerEntries<AcmeCompiler> compiler_entries_{compiler_};    // offer<bp_compiler>(compiler_entries_)
#pragma once

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "../compiler.h"
#include "entries.hpp"
#include "table.hpp"

namespace backplane::driver {

/// What a compilation has made.
struct Compiled {
  std::string code;  // "": the source is wrong
  std::string log;
  std::string kernel = {}, parameters = {};  // of TTIR, as the rest
  uint32_t group_size = 0, local_bytes = 0;
};

inline bool supports(const bp_target_properties& target, uint32_t language) {
  return language < 64 && ((target.languages ? target.languages : 1) >> language & 1) != 0;
}

/// The source with a line in front by which messages name the unit and its lines, for compilers that know #line; and the name there.
inline std::string named_unit(const bp_compile_request& request) {
  std::string name = request.name;
  for (char& one : name) {
    if (static_cast<unsigned char>(one) < 32 || one == '"' || one == '\\') one = '_';
  }
  return name;
}
inline std::string named_source(const bp_compile_request& request) { return "#line 1 \"" + named_unit(request) + "\"\n" + request.source; }

/// The first line of a log with an error of a compiler or a linker.
inline std::string first_error(const std::string& log) {
  size_t at = std::min(log.find("error:"), log.find("undefined reference to"));
  if (at == std::string::npos) at = log.find("error");
  if (at == std::string::npos) at = 0;
  const size_t line = at == 0 ? std::string::npos : log.rfind('\n', at - 1);
  const size_t begin = line == std::string::npos ? 0 : line + 1;
  return log.substr(begin, log.find('\n', begin) - begin);
}

template <class Compiler>
class CompilerEntries {
 public:
  explicit CompilerEntries(Compiler& compiler) : compiler_(compiler) {}

  void id(char* out, uint64_t size) {
    need(out, "compiler.id: out");
    if (size == 0) throw Error(BP_INVALID_ARGUMENT, "compiler.id: size must be at least 1");
    std::snprintf(out, size, "%s", compiler_.id().c_str());
  }

  void target(int32_t device, bp_target_properties* out) {
    if (device >= 0) {
      *out = compiler_.target(device);
      return;
    }
    const auto all = compiler_.targets();
    const auto index = static_cast<size_t>(-1 - int64_t{device});
    if (index >= all.size()) throw Error(BP_INVALID_DEVICE, format("compiler.target: no target %d: there are %zu", device, all.size()));
    *out = all[index];
  }

  void prelude(const char* target, const char** out) {
    need(out, "compiler.prelude: out");
    need_language(target_named(target), BP_LANGUAGE_DIALECT);
    *out = compiler_.prelude(target);
  }

  void compile(const bp_compile_request* request, bp_compile_result* out) {
    const auto hold = [](bool holds, const char* what) {
      if (!holds) throw Error(BP_INVALID_ARGUMENT, std::string("compiler.compile: ") + what);
    };
    hold(request && request->struct_size >= offsetof(bp_compile_request, triton), "the request, with its struct_size, is needed");
    hold(out && out->struct_size >= offsetof(bp_compile_result, kernel), "out, with its struct_size, is needed");
    const auto given = whole_slots<bp_compile_request>(request, request->struct_size);
    hold(given.target && given.source && given.name && given.options, "target, source, name and options must not be NULL");
    constexpr uint32_t known = BP_COMPILE_DEBUG | BP_COMPILE_FAST_MATH | BP_COMPILE_LIGHT;
    hold((given.flags & ~known) == 0, "there is an unknown flag");
    hold(given.language <= BP_LANGUAGE_TTIR, "there is an unknown language");
    const bool ttir = given.language == BP_LANGUAGE_TTIR;
    hold(!ttir || (given.triton && given.num_warps && out->struct_size >= sizeof *out), "TTIR needs triton, num_warps and a whole result");
    need_language(target_named(given.target), given.language);
    auto made = std::make_unique<Compiled>(compiler_.compile(given));
    const bool right = !made->code.empty();
    bp_compile_result full{0, right ? made->code.data() : nullptr, made->code.size(), made->log.c_str(), made.get(), nullptr, nullptr, 0,
                           0};
    if (ttir && right) {
      full.kernel = made->kernel.c_str(), full.parameters = made->parameters.c_str();
      full.group_size = made->group_size, full.local_bytes = made->local_bytes;
    }
    hand_out(out, full, "compiler.compile: out");
    const std::string& log = made.release()->log;  // the caller's, also of a source that is wrong
    if (!right) throw Error(BP_INVALID_ARGUMENT, "compiler.compile: " + first_error(log));
  }

  void release(bp_compile_result* result) {
    need(result && result->owner, "compiler.release: result and its owner");
    delete static_cast<Compiled*>(result->owner);
    hand_out(result, {}, "compiler.release: result");
  }

 private:
  static void need_language(const bp_target_properties& target, uint32_t language) {
    if (supports(target, language)) return;
    throw Error(BP_UNSUPPORTED, format("compiler: the target %s does not support %s", target.target, language ? "TTIR" : "the dialect"));
  }
  bp_target_properties target_named(const char* name) {
    std::string known;
    for (const bp_target_properties& target : compiler_.targets()) {
      if (name && std::string(target.target) == name) return target;
      known += (known.empty() ? "" : ", ") + std::string(target.target);
    }
    throw Error(BP_INVALID_ARGUMENT, std::string("compiler: no target ") + (name ? name : "NULL") + "; known: " + known);
  }

  Compiler& compiler_;
};

}  // namespace backplane::driver
