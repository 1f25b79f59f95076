// drivers/engine/prelude.h: words of a prelude (docs/dialect.md) that are generated.
#pragma once

#include <string>

namespace backplane::driver {

/// Of a kernel: as many as a bp_signature may have.
constexpr int kMaxPointers = 64;

/// BP_EACH_1 to BP_EACH_64: BP_EACH_n(X) is X(0), X(1) to X(n - 1).
inline std::string each_pointer() {
  std::string text = "#define BP_EACH_1(X) X(0)\n";
  for (int n = 2; n <= kMaxPointers; ++n) {
    const std::string last = std::to_string(n - 1);
    text += "#define BP_EACH_" + std::to_string(n) + "(X) BP_EACH_" + last + "(X), X(" + last + ")\n";
  }
  return text;
}

}  // namespace backplane::driver
