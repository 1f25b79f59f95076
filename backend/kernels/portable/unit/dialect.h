// kernels/portable/unit/dialect.h: torch's dtypes in the words of the kernel dialect.
#pragma once

#include <c10/core/ScalarType.h>

#include "kernels/portable/unit/text.h"
#include "modules/target.h"

namespace backplane::portable {

// Whether the dialect supports the dtype.
inline bool is_in_dialect(c10::ScalarType dtype) {
  const auto bit = [](c10::ScalarType one) { return uint64_t{1} << static_cast<int>(one); };
  constexpr uint64_t all = bit(c10::kByte) | bit(c10::kChar) | bit(c10::kShort) | bit(c10::kInt) | bit(c10::kLong) | bit(c10::kHalf) |
                           bit(c10::kBFloat16) | bit(c10::kFloat) | bit(c10::kDouble) | bit(c10::kBool);
  return (all >> static_cast<int>(dtype) & 1) != 0;
}

// Supported by pointwise kernels in addition: they convert both, compute complex numbers, and compare float8.
inline bool is_complex(c10::ScalarType dtype) { return dtype == c10::kComplexFloat; }
inline bool is_float8(c10::ScalarType dtype) { return c10::isFloat8Type(dtype); }
inline bool is_pointwise(c10::ScalarType dtype) { return is_in_dialect(dtype) || is_complex(dtype) || is_float8(dtype); }

// The dtype's name in bp_load_<name>, for example "bf16", or NULL if the dialect does not support it; and the type of its elements in
// memory, for example "u16".
Literal dialect_name(c10::ScalarType dtype);
Literal memory_type(c10::ScalarType dtype);

// The compute type of a dtype: "f32", "f64", "i32", "i64" or "c64".
Literal compute_type(c10::ScalarType dtype);

// Whether a target supports the dtype: some do not support float64.
inline bool has_dtype(const Target& target, c10::ScalarType dtype) {
  return is_in_dialect(dtype) && (dtype != c10::kDouble || (target.properties.dtypes & BP_DTYPE_FLOAT64) != 0);
}

}  // namespace backplane::portable
