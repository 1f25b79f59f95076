// kernels/portable/dialect.h: torch's dtypes in the words of the kernel dialect.
#pragma once

#include <c10/core/ScalarType.h>

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
const char* dialect_name(c10::ScalarType dtype);
const char* memory_type(c10::ScalarType dtype);

// What values of a dtype are computed in: "f32", "f64", "i32", "i64", "c64".
const char* compute_type(c10::ScalarType dtype);

// Whether a target computes in it: float64 is what some lack.
inline bool has_dtype(const Target& target, c10::ScalarType dtype) {
  return is_in_dialect(dtype) && (dtype != c10::kDouble || (target.properties.dtypes & BP_DTYPE_FLOAT64) != 0);
}

// A dtype's place in a key of four bits: its number in torch, or that of one which the dialect lacks.
inline uint64_t dtype_bits(c10::ScalarType dtype) {
  constexpr uint64_t kFloat8Bits[] = {10, 12, 13, 14};  // from Float8_e5m2 on
  if (dtype == c10::ScalarType::Float8_e8m0fnu) return 8;
  if (is_float8(dtype)) return kFloat8Bits[static_cast<int>(dtype) - static_cast<int>(c10::ScalarType::Float8_e5m2)];
  return static_cast<uint64_t>(dtype) & 15;
}
constexpr uint64_t kNoDtype = 8;  // in keys of kernels that take no float8

}  // namespace backplane::portable
