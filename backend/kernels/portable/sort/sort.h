// kernels/portable/sort/sort.h: sorts rows of elements. Operators that need an order, or part of one, use it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/unit.h"
#include "modules/target.h"

namespace backplane::portable {

// A tensor as rows along one dimension: dense, one row for each element of the other dimensions, in order.
struct Rows {
  at::Tensor x;  // (count, size)
  int64_t count, size;
};
Rows rows_of(const at::Tensor& tensor, int64_t dim);

// The elements of a result and their places: new tensors, or the call's. Undefined: the call's tensors are left to the CPU.
struct ValuesAndPlaces {
  Output values, places;
  void give(Call& call) const {
    values.give(call);
    places.give(call);
  }
};
std::optional<ValuesAndPlaces> outputs_of(const Call& call, const at::Tensor& self, at::IntArrayRef sizes);

// Whether a place in a row of that size is an i64 in keys.bpc's pairs.
inline bool has_wide_places(int64_t size) { return size > std::numeric_limits<int32_t>::max(); }
// Defines what dialect/keys.bpc requires, and adds its file.
void define_keys(Unit& unit, c10::ScalarType dtype, bool is_descending, bool is_wide);

// The bits of a digit, 1 to 4, for which each item of a group can count all digits in local memory.
int digit_bits(const Target& target);

// Whether rows are short enough to be sorted by one walk through local memory.
bool is_short_row(const Target& target, c10::ScalarType dtype, int64_t size);

// Writes the first places.size(1) elements of each row of dense x in order, and their places, or the values of `given` there. All tensors
// are dense and of two dimensions, places and given int64; `given` may be undefined. Equal elements keep their order; NaN is the largest.
// False: nothing was done, because the kernel is not available (yet).
bool sort_rows(const at::Tensor& x, bool is_descending, const at::Tensor& given, const at::Tensor& values, const at::Tensor& places);

// Writes the first places.size(1) elements of each row in order, like sort_rows(), where there are many rows and few elements are wanted.
bool can_take_first(const Target& target, const Rows& rows, int64_t wanted);
bool take_first(const Rows& rows, bool is_descending, const at::Tensor& values, const at::Tensor& places);

}  // namespace backplane::portable
