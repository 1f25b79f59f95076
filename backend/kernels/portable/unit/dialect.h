// kernels/portable/unit/dialect.h: torch's dtypes in the words of the kernel dialect.
#pragma once

#include <c10/core/ScalarType.h>

#include "kernels/portable/unit/text.h"
#include "modules/target.h"

namespace backplane::portable {

// Whether the dialect has it.
inline bool is_in_dialect(c10::ScalarType dtype) {
  const auto bit = [](c10::ScalarType one) { return uint64_t{1} << static_cast<int>(one); };
  constexpr uint64_t all = bit(c10::kByte) | bit(c10::kChar) | bit(c10::kShort) | bit(c10::kInt) | bit(c10::kLong) | bit(c10::kHalf) |
                           bit(c10::kBFloat16) | bit(c10::kFloat) | bit(c10::kDouble) | bit(c10::kBool);
  return (all >> static_cast<int>(dtype) & 1) != 0;
}

// What pointwise kernels take beside those: they convert both, compute in the first, and compare the second.
inline bool is_complex(c10::ScalarType dtype) { return dtype == c10::kComplexFloat; }
inline bool is_float8(c10::ScalarType dtype) { return c10::isFloat8Type(dtype); }
inline bool is_pointwise(c10::ScalarType dtype) { return is_in_dialect(dtype) || is_complex(dtype) || is_float8(dtype); }

// The dtype as in bp_load_<name>, "bf16", or NULL if the dialect does not have it; and the type that its elements have in memory, "u16".
Literal dialect_name(c10::ScalarType dtype);
Literal memory_type(c10::ScalarType dtype);

// What values of a dtype are computed in: "f32", "f64", "i32", "i64", "c64".
Literal compute_type(c10::ScalarType dtype);

// Whether a target computes in it: float64 is what some lack.
inline bool has_dtype(const Target& target, c10::ScalarType dtype) {
  return is_in_dialect(dtype) && (dtype != c10::kDouble || (target.properties.dtypes & BP_DTYPE_FLOAT64) != 0);
}

}  // namespace backplane::portable
