// modules/ttir.h: what the driver says of a compiled module of TTIR, kept in front of its code, in the cache too.
#pragma once

#include <backplane/driver/compiler.h>

#include <cstdint>
#include <string>

#include "modules/cache.h"

namespace backplane {

struct TtirFacts {
  std::string kernel;      // for bp.module's function
  std::string parameters;  // p, i, f, d
  uint32_t group_size = 0, local_bytes = 0;
  size_t size = 0;  // of them in front of the code
};

// Of a compilation that has succeeded. Throws what is wrong with it.
Code with_ttir_facts(const bp_compile_result& result);
TtirFacts ttir_facts_of(const Code& code);

}  // namespace backplane
