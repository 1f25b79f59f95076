// host/conversion.h: converts elements between dtypes, for code that walks strided device memory.
#pragma once

#include <backplane/dtypes.h>

#include <cstdint>

namespace backplane {

// How many elements are converted at a time; buffers for them have kChunk * 8 bytes.
constexpr int64_t kChunk = 256;

struct Run {  // elements with a stride in bytes
  char* data;
  int64_t stride;
};

// float, double or int64: the compute type of a convertible dtype.
c10::ScalarType compute_dtype(c10::ScalarType dtype);

inline int64_t size_of(c10::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

// Converts at most kChunk elements; both dtypes are in NumbersAndBool. The runs do not overlap.
void convert(c10::ScalarType from_dtype, Run from, c10::ScalarType to_dtype, Run to, int64_t count);

// The dtype to which type promotion rounds a value of `dtype` that enters or leaves a kernel computing in `type`; Undefined if there is no
// intermediate one.
c10::ScalarType rounds_to(c10::ScalarType common, c10::ScalarType dtype, c10::ScalarType type);

// The same, by `via` unless that is Undefined.
void convert_via(c10::ScalarType via, c10::ScalarType from_dtype, Run from, c10::ScalarType to_dtype, Run to, int64_t count);

}  // namespace backplane
