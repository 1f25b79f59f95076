// kernels/portable/unit/places.h: shared by the operators that read and write at places given by a tensor.
//
// A place that is out of range is reported (runtime/reports.h), read as 0 and not written; the debug build of a kernel stops there
// (BP_ASSERT). Errors of shapes and dtypes are the CPU's, to which such calls are left.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {

using Strides = c10::SmallVector<int64_t, 6>;

// A statement that runs where a place is within `size`: `at`, which is the index, or, WRAPPED, counts from the end below 0.
#define IN_RANGE(index, size) IF_IN_RANGE("const i64 at = " index, index, size)
#define WRAPPED_IN_RANGE(index, size) IF_IN_RANGE("const i64 at = " index " < 0 ? " index " + " size " : " index, index, size)
#define IF_IN_RANGE(at, index, size) \
  at "; BP_ASSERT(at >= 0 && at < " size "); if (at < 0 || at >= " size ") REPORT(" index ", " size "); else "

// Integers that name places of self, on its device.
bool is_index(const at::Tensor& index, const at::Tensor& self);

at::Tensor at_least_1d(const at::Tensor& tensor);

// The dimension as a number from 0 on; nothing if there is none such.
std::optional<int64_t> dimension(const c10::IValue& value, const at::Tensor& self);

// Whether source has self's sizes but in dim, where it has the index's.
bool is_part(const at::Tensor& self, const at::Tensor& index, const at::Tensor& source, int64_t dim);

// What an operator that changes a part of self writes to: self, or a copy of it. Undefined: the call is not ours.
at::Tensor changed(const Call& call, std::initializer_list<const at::Tensor*> others);

// Sums into places that repeat: in order, or with the target's atomics where they are faster and nobody asks for the same bits each time.
bool has_atomic(c10::DeviceIndex device, c10::ScalarType dtype);
// A statement that adds `value` to p0 at `place`.
std::string atomic_add(c10::ScalarType dtype, const char* place, const char* value);

// Strides of a vector of indices over the other tensor's dimensions.
Strides along(const at::Tensor& index, int64_t dim, int64_t dims);

// The places of what is not zero, a row each, and strides as torch's; undefined if there is no kernel. Waits for the device.
at::Tensor places_of(const at::Tensor& given);

}  // namespace backplane::portable
