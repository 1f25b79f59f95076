// kernels/portable/sort/sort.h: rows of elements put into order. What needs an order, or a part of it, is made of this.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/unit.h"
#include "modules/target.h"

namespace backplane::portable {

// A tensor as rows along one dimension: dense, as many as there are elements of the others, in their order.
struct Rows {
  at::Tensor x;  // (count, size)
  int64_t count, size;
};
Rows rows_of(const at::Tensor& tensor, int64_t dim);

// The elements of a result, and where they stood: new tensors, or the call's. Nothing: the call's are the CPU's affair.
struct ValuesAndPlaces {
  Output values, places;
  void give(Call& call) const {
    values.give(call);
    places.give(call);
  }
};
std::optional<ValuesAndPlaces> outputs_of(const Call& call, const at::Tensor& self, at::IntArrayRef sizes);

// Whether a place in a row of that size is an i64, in keys.bpc's pairs.
inline bool has_wide_places(int64_t size) { return size > std::numeric_limits<int32_t>::max(); }
// What dialect/keys.bpc wants to be defined, and the file.
void define_keys(Unit& unit, c10::ScalarType dtype, bool is_descending, bool is_wide);

// Bits of a digit such that an item of each group can count all digits in work-group memory of its own: 1 to 4.
int digit_bits(const Target& target);

// Rows that are so short that one walk through a group's own memory puts them into order.
bool is_short_row(const Target& target, c10::ScalarType dtype, int64_t size);

// The first places.size(1) elements of each row of dense x in order, and where they stood, or what `given` has there. All are dense and of
// two dimensions, places and given int64; `given` may be undefined. Equal elements stay as they stood; NaN is the largest.
// False: there is no such kernel, and nothing was done.
bool sort_rows(const at::Tensor& x, bool is_descending, const at::Tensor& given, const at::Tensor& values, const at::Tensor& places);

}  // namespace backplane::portable
