// kernels/portable/sort/sets.cpp: unique, along a dimension too, and isin. Equal elements are adjacent after sorting; the places where runs
// begin are read back, since their number is the size of the result.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/result_type.h>

#include <optional>
#include <string>

#include "kernels/portable/sort/sort.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace sets_impl {
namespace {

constexpr int64_t kMostColumns = 64;  // of slices, which are sorted by one column after the other

struct Runs {
  at::Tensor starts;   // (number of runs)
  at::Tensor inverse;  // of each element, or undefined
  at::Tensor counts;   // of each run, or undefined
};

// begins: (n), whether a run begins there. order: the places before sorting; undefined: unchanged.
Runs runs_of(const at::Tensor& begins, const at::Tensor& order, bool wants_inverse, bool wants_counts) {
  const int64_t n = begins.numel();
  const c10::DeviceIndex device = begins.device().index();
  Runs runs;
  runs.starts = begins.nonzero().select(1, 0);
  const int64_t count = runs.starts.numel();
  if (wants_inverse) {
    const at::Tensor numbers = begins.cumsum(0).sub_(1);
    runs.inverse = order.defined() ? empty({n}, c10::kLong, device).scatter_(0, order, numbers) : numbers;
  }
  if (wants_counts) {
    runs.counts = empty({count}, c10::kLong, device);
    runs.counts.narrow(0, 0, count - 1).copy_(runs.starts.narrow(0, 1, count - 1));
    runs.counts.narrow(0, count - 1, 1).fill_(n);
    runs.counts.sub_(runs.starts);
  }
  return runs;
}

at::Tensor or_empty(const at::Tensor& tensor, c10::DeviceIndex device) {
  return tensor.defined() ? tensor : empty({0}, c10::kLong, device);
}

// For n sorted elements or rows: the first, and those that differ from the previous one.
at::Tensor beginnings(const at::Tensor& in_order) {
  const int64_t n = in_order.size(0);
  at::Tensor differs = in_order.narrow(0, 1, n - 1).ne(in_order.narrow(0, 0, n - 1));
  if (differs.dim() == 2) differs = differs.any(1);
  const at::Tensor begins = empty({n}, c10::kBool, in_order.device().index());
  begins.narrow(0, 0, 1).fill_(true);
  begins.narrow(0, 1, n - 1).copy_(differs);
  return begins;
}

// All elements of self as one dimension: the distinct values, the index of each element's value, and the counts.
bool distinct(Call& call, bool is_sorted, bool wants_inverse, bool wants_counts, bool gives_counts) {
  const at::Tensor& self = call.tensor(0);
  if (!is_usable(self)) return false;
  const c10::DeviceIndex device = self.device().index();
  at::Tensor values, inverse, counts;
  if (self.numel() == 0) {
    values = empty({0}, self.scalar_type(), device);
    if (wants_inverse) inverse = empty(self.sizes(), c10::kLong, device);
  } else {
    at::Tensor in_order = self.reshape({-1}).contiguous(), order;
    if (!is_sorted) {
      const at::Tensor row = in_order.view({1, -1});
      in_order = empty(row.sizes(), row.scalar_type(), device);
      order = empty(row.sizes(), c10::kLong, device);
      if (!sort_rows(row, false, {}, in_order, order)) return false;
      in_order = in_order.view({-1});
      order = order.view({-1});
    }
    const Runs runs = runs_of(beginnings(in_order), order, wants_inverse, wants_counts);
    values = in_order.index_select(0, runs.starts);
    if (wants_inverse) inverse = runs.inverse.view(self.sizes());
    counts = runs.counts;
  }
  call.give(values);
  call.give(or_empty(inverse, device));
  if (gives_counts) call.give(or_empty(counts, device));
  return true;
}

// The same for slices along a dimension. All three results are returned, as in torch.
bool distinct_slices(Call& call, int64_t given_dim, bool is_sorted) {
  const at::Tensor& self = call.tensor(0);
  const auto dim = dimension_of(given_dim, self);
  if (!is_usable(self) || self.dim() == 0 || self.numel() == 0 || !dim) return false;
  const c10::DeviceIndex device = self.device().index();
  const at::Tensor moved = self.movedim(*dim, 0);
  at::Tensor rows = moved.reshape({self.size(*dim), -1});
  at::Tensor order;
  if (!is_sorted) {
    // For slices with NaN, the CPU's order depends on its sorting algorithm.
    if (rows.size(1) > kMostColumns || (c10::isFloatingType(self.scalar_type()) && rows.ne(rows).any().item().toBool())) return false;
    for (int64_t c = rows.size(1) - 1; c >= 0; --c) {
      at::Tensor column = rows.select(1, c).contiguous();
      if (order.defined()) column = column.index_select(0, order.view({-1}));
      column = column.view({1, -1});
      const at::Tensor sorted = empty(column.sizes(), column.scalar_type(), device), next = empty(column.sizes(), c10::kLong, device);
      if (!sort_rows(column, false, order, sorted, next)) return false;
      order = next;
    }
    order = order.view({-1});
    rows = rows.index_select(0, order);
  }
  const Runs runs = runs_of(beginnings(rows), order, true, true);
  at::DimVector sizes(moved.sizes());
  sizes[0] = runs.starts.numel();
  call.give(rows.index_select(0, runs.starts).view(sizes).movedim(0, *dim));
  call.give(runs.inverse);
  call.give(runs.counts);
  return true;
}

// _unique2(self, sorted, return_inverse, return_counts): always sorted, as on the CPU
bool unique2(Call& call) { return distinct(call, false, call[2].toBool(), call[3].toBool(), true); }
bool unique(Call& call) { return distinct(call, false, call[2].toBool(), false, false); }
// unique_consecutive(self, return_inverse, return_counts, dim)
bool unique_consecutive(Call& call) {
  if (call.has(3) && call.tensor(0).dim() != 1) return distinct_slices(call, call[3].toInt(), true);
  if (call.has(3) && !dimension_of(call[3].toInt(), call.tensor(0))) return false;
  return distinct(call, true, call[1].toBool(), call[2].toBool(), true);
}
bool unique_dim(Call& call) { return distinct_slices(call, call[1].toInt(), false); }
bool unique_dim_consecutive(Call& call) { return distinct_slices(call, call[1].toInt(), true); }

// --- isin ---

bool give(Call& call, const at::Tensor& result) {
  if (call.is_functional()) {
    call.give(result);
    return true;
  }
  const at::Tensor out = call.output(result.sizes(), c10::kBool, result.device());
  if (!out.defined()) return false;
  out.copy_(result);
  call.give(out);
  return true;
}

bool is_comparable(const at::Tensor& tensor) { return is_usable(tensor) && tensor.scalar_type() != c10::kBool; }

// isin(elements, test_elements, assume_unique, invert): binary search in the sorted test elements
bool isin(Call& call) {
  const at::Tensor &elements = call.tensor(0), &tests = call.tensor(1);
  const bool is_inverted = call[3].toBool();
  if (!is_comparable(elements) || !is_comparable(tests) || elements.device() != tests.device()) return false;
  const c10::ScalarType common = at::result_type(elements, tests);
  const c10::DeviceIndex device = elements.device().index();
  const at::Tensor result = empty(elements.sizes(), c10::kBool, device);
  if (tests.numel() == 0) {
    result.fill_(is_inverted);
  } else if (elements.numel() != 0) {
    const at::Tensor row = tests.to(common).reshape({1, -1}).contiguous();
    const at::Tensor sorted = empty(row.sizes(), common, device), places = empty(row.sizes(), c10::kLong, device);
    if (!sort_rows(row, false, {}, sorted, places)) return false;
    const at::Tensor in = elements.to(common);
    const c10::SmallVector<int64_t, 6> none(static_cast<size_t>(in.dim()), 0);
    Walk walk("isin", in.sizes(), device);
    walk.write(result).read(in).read(sorted, none).integer(row.numel()).integer(is_inverted ? 1 : 0).compute_in(common);
    if (!walk.run("const C x = LOAD1(i1); i64 low = 0; for (i64 left = s0; left > 1; left -= left / 2) "
                  "low += LOAD2(i2 + low + left / 2 - 1) < x ? left / 2 : 0; STORE0(i0, (LOAD2(i2 + low) == x) != (s1 != 0));")) {
      return false;
    }
  }
  return give(call, result);
}

bool isin_number(Call& call) {
  const at::Tensor& elements = call.tensor(0);
  const c10::Scalar number = call[1].toScalar();
  if (!is_comparable(elements) || number.isBoolean() || number.isComplex()) return false;
  return give(call, call[3].toBool() ? elements.ne(number) : elements.eq(number));
}
bool number_isin(Call& call) {
  const c10::Scalar number = call[0].toScalar();
  const at::Tensor& tests = call.tensor(1);
  if (!is_comparable(tests) || number.isBoolean() || number.isComplex()) return false;
  const at::Tensor found = tests.eq(number).any();
  return give(call, call[3].toBool() ? found.logical_not() : found);
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"_unique2"}, &unique2);
  add_operator(kernels, {"_unique"}, &unique);
  add_operator(kernels, {"unique_consecutive"}, &unique_consecutive);
  add_operator(kernels, {"unique_dim"}, &unique_dim);
  add_operator(kernels, {"unique_dim_consecutive"}, &unique_dim_consecutive);
  add_operator(kernels, {"isin.Tensor_Tensor", "isin.Tensor_Tensor_out"}, &isin);
  add_operator(kernels, {"isin.Tensor_Scalar", "isin.Tensor_Scalar_out"}, &isin_number);
  add_operator(kernels, {"isin.Scalar_Tensor", "isin.Scalar_Tensor_out"}, &number_isin);
});

}  // namespace
}  // namespace sets_impl
}  // namespace backplane::portable
