// host/conversion.h: elements from one dtype to another, for everything that walks strided device memory.
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

// float, double or int64: what a convertible dtype is computed in.
c10::ScalarType compute_dtype(c10::ScalarType dtype);

inline int64_t size_of(c10::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

// Converts at most kChunk elements; both dtypes are in NumbersAndBool. The runs do not overlap.
void convert(c10::ScalarType from_dtype, Run from, c10::ScalarType to_dtype, Run to, int64_t count);

// The dtype that a value of `dtype` is rounded to on its way into a kernel that computes in `type`, or out of it, by the rules of type
// promotion; Undefined if the way is direct.
c10::ScalarType rounds_to(c10::ScalarType common, c10::ScalarType dtype, c10::ScalarType type);

// The same, by way of `via` unless that is Undefined.
void convert_via(c10::ScalarType via, c10::ScalarType from_dtype, Run from, c10::ScalarType to_dtype, Run to, int64_t count);

}  // namespace backplane
