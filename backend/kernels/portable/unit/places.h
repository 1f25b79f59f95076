// kernels/portable/unit/places.h: what indexing operators share: places, element numbers that a tensor of integers gives.
//
// A place out of range is reported (runtime/reports.h), read as 0 and not written; the debug build of a kernel stops there (BP_ASSERT).
// Calls with wrong shapes or dtypes are left to the CPU, which raises.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {

using Strides = c10::SmallVector<int64_t, 6>;

// Guards a statement by `at` being within `size`. `at` is the index; WRAPPED: a negative index counts from the end.
#define IN_RANGE(index, size) IF_IN_RANGE("const i64 at = " index, index, size)
#define WRAPPED_IN_RANGE(index, size) IF_IN_RANGE("const i64 at = " index " < 0 ? " index " + " size " : " index, index, size)
#define IF_IN_RANGE(at, index, size) \
  at "; BP_ASSERT(at >= 0 && at < " size "); if (at < 0 || at >= " size ") REPORT(" index ", " size "); else "

// Whether it is a tensor of integers on self's device.
bool is_index(const at::Tensor& index, const at::Tensor& self);

at::Tensor at_least_1d(const at::Tensor& tensor);

// The dimension, wrapped to 0 or more; none if it is out of range.
std::optional<int64_t> dimension(const c10::IValue& value, const at::Tensor& self);

// Whether source has self's sizes, and the index's in dim.
bool is_part(const at::Tensor& self, const at::Tensor& index, const at::Tensor& source, int64_t dim);

// The destination of an operator that changes a part of self: self, or a copy. Undefined: the call is not supported.
at::Tensor changed(const Call& call, std::initializer_list<const at::Tensor*> others);

// Whether sums into repeated places use the target's atomics: where they are faster, and deterministic algorithms are not requested.
bool has_atomic(c10::DeviceIndex device, c10::ScalarType dtype);
// The statement that adds `value` to p0 at `place`.
std::string atomic_add(c10::ScalarType dtype, const char* place, const char* value);

// The strides of a vector of indices, broadcast over the other tensor's dimensions.
Strides along(const at::Tensor& index, int64_t dim, int64_t dims);

// As torch.nonzero: a row for each nonzero element, with torch's strides. Undefined if there is no kernel. Waits for the device.
at::Tensor places_of(const at::Tensor& given);

}  // namespace backplane::portable
