// kernels/portable/sort/select.cpp: topk, kthvalue, median: operators that need only part of an order.
#include <backplane/structured.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>

#include "kernels/portable/reduction/reduce.h"
#include "kernels/portable/sort/sort.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/walk.h"
#include "modules/launch.h"

namespace backplane::portable {
namespace select_impl {
namespace {

// Bits per digit, with one item: large digits save walks through the row, but cost time themselves.
int digit_bits(const Target& target, int64_t size) {
  if (!target.is_host()) return portable::digit_bits(target);
  return size <= 256 ? 4 : size <= 16384 ? 8 : 11;
}

constexpr int64_t kSample = 64;      // elements, as in select.bpc
constexpr int64_t kRowsAtOnce = 64;  // rows with scratch memory, with one item

// Selects the first k of a row: the elements up to number `pivot` of a sorted sample are very likely more than k.
struct Sample {
  bool is_worth = false;
  int64_t pivot = 0, expected = 0, room = 0;
};
Sample sample_of(int64_t size, int64_t k) {
  const double share = static_cast<double>(kSample) * static_cast<double>(k) / static_cast<double>(size);
  Sample sample;
  sample.pivot = static_cast<int64_t>(share + 3 * std::sqrt(share)) + 2;
  sample.expected = sample.pivot * size / kSample;
  sample.room = 3 * sample.expected + 1;
  sample.is_worth = size >= 512 && sample.pivot < kSample / 4;
  return sample;
}

enum class Wanted : uint8_t { at_rank, first, median, nanmedian };

// One element of each row, by sorting short rows. values, places: dense.
bool sort_and_pick(const Rows& rows, Wanted wanted, int64_t rank, const at::Tensor& values, const at::Tensor& places) {
  const c10::DeviceIndex device = rows.x.device().index();
  const c10::ScalarType dtype = rows.x.scalar_type();
  const at::Tensor sorted = empty(rows.x.sizes(), dtype, device), stood = empty(rows.x.sizes(), c10::kLong, device);
  if (!sort_rows(rows.x, false, {}, sorted, stood)) return false;
  Walk walk("select", {rows.count}, device);
  const std::array<int64_t, 1> one{1}, next{rows.size};
  walk.write(values, one).write(places, one).read(sorted, next).read(stood, next).integer(rows.size).integer(rank).compute_in(dtype);
  // The number of elements before NaN, which come last.
  const char* const numbers =
      "i64 low = 0; i64 high = s0; while (low < high) { const i64 middle = (low + high) / 2; const C y = LOAD2(i2 + middle); "
      "if (y == y) low = middle + 1; else high = middle; } ";
  const char* const at = wanted == Wanted::at_rank  ? "const i64 at = s1; "
                         : wanted == Wanted::median ? "const i64 at = low < s0 ? low : (s0 - 1) / 2; "
                                                    : "const i64 at = low > 0 ? (low - 1) / 2 : 0; ";
  const std::string body = join(wanted == Wanted::at_rank ? "" : numbers, at, "STORE0(i0, LOAD2(i2 + at)); p1[i1] = p3[i3 + at];");
  return walk.run(body);
}

// The elements of each row of dense x up to number `rank`, in their order in x, or one of them. values, places: dense.
bool select_rows(const Rows& rows, Wanted wanted, bool is_descending, int64_t rank, const at::Tensor& values, const at::Tensor& places) {
  if (rows.count == 0) return true;
  const c10::DeviceIndex device = rows.x.device().index();
  const c10::ScalarType dtype = rows.x.scalar_type();
  const Target& target = target_of(device);
  if (wanted != Wanted::first && is_short_row(target, dtype, rows.size)) return sort_and_pick(rows, wanted, rank, values, places);
  const bool is_wide = has_wide_places(rows.size);
  const Sample sample = wanted == Wanted::first && target.is_host() ? sample_of(rows.size, rank + 1) : Sample{};
  const int bits = digit_bits(target, sample.is_worth ? sample.expected : rows.size);
  Unit unit(device, "select.bpc", "select_rows", "select");
  define_keys(unit, dtype, is_descending, is_wide);
  unit.define("DIGIT_BITS", bits).define_if(wanted == Wanted::first, "FIRST").define_if(wanted == Wanted::median, "MEDIAN");
  unit.define_if(wanted == Wanted::nanmedian, "NANMEDIAN").define_if(sample.is_worth, "SAMPLED");
  const uint32_t pointers = sample.is_worth ? 5 : 3;
  const Function* const select = unit.define("POINTERS", pointers).find(1, pointers, 5, sample.is_worth ? 0b11011 : 0b11);
  if (select == nullptr) return false;
  Arguments arguments;
  arguments.write(values).write(places).read(rows.x);
  int64_t groups = rows.count;
  at::Tensor likely, likely_places;
  if (sample.is_worth) {
    groups = std::min(groups, kRowsAtOnce);
    likely = empty({groups * sample.room}, dtype, device);
    likely_places = empty({groups * sample.room}, is_wide ? c10::kLong : c10::kInt, device);
    arguments.write(likely).write(likely_places);
  }
  arguments.words(rows.count, rows.size, rank, sample.pivot, sample.room);
  launch_function(device, *select, static_cast<uint64_t>(groups), arguments);
  return true;
}

bool has_order(const at::Tensor& self) { return is_usable(self) && self.scalar_type() != c10::kBool; }

// The largest or smallest element along a dimension, by a reduction. False: it is not one; the smallest number is not NaN where others are.
bool fold_extreme(const at::Tensor& self, int64_t dim, bool is_largest, const at::Tensor& values, const at::Tensor& places) {
  if (!is_largest && c10::isFloatingType(self.scalar_type())) return false;
  const FoldCall call{self, DimMask(uint64_t{1} << dim), self.scalar_type()};
  return fold({is_largest ? Literal("max") : Literal("min"), 2, true}, call, {values, places});
}

// The first values.size(1) elements of each row, by the way that is the least work.
bool write_first(const Rows& rows, bool is_largest, bool is_sorted, const at::Tensor& values, const at::Tensor& places) {
  const c10::DeviceIndex device = rows.x.device().index();
  const Target& target = target_of(device);
  const int64_t k = values.size(1);
  if (can_take_first(target, rows, k)) return take_first(rows, is_largest, values, places);
  if (is_short_row(target, rows.x.scalar_type(), rows.size) || 2 * k >= rows.size) return sort_rows(rows.x, is_largest, {}, values, places);
  if (!is_sorted || k == 1) return select_rows(rows, Wanted::first, is_largest, k - 1, values, places);
  const at::Tensor found = empty(values.sizes(), values.scalar_type(), device), stood = empty(values.sizes(), c10::kLong, device);
  return select_rows(rows, Wanted::first, is_largest, k - 1, found, stood) && sort_rows(found, is_largest, stood, values, places);
}

// self, k, dim, largest, sorted
bool topk(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const int64_t k = call[1].toInt();
  const bool is_largest = call[3].toBool(), is_sorted = call[4].toBool();
  const auto dim = dimension_of(call[2].toInt(), self);
  if (!has_order(self) || !dim) return false;
  const int64_t size = self.dim() == 0 ? 1 : self.size(*dim);
  if (k < (self.dim() == 0 ? 1 : 0) || k > size) return false;
  at::DimVector sizes(self.sizes());
  if (self.dim() != 0) sizes[*dim] = k;
  const auto outputs = outputs_of(call, self, sizes);
  if (!outputs) return false;
  const Output &values = outputs->values, &places = outputs->places;
  const c10::DeviceIndex device = self.device().index();
  const bool is_folded =
      k == 1 && size > 1 && values.dense().numel() != 0 && fold_extreme(self, *dim, is_largest, values.dense(), places.dense());
  if (!is_folded && values.dense().numel() != 0) {
    const Rows rows = rows_of(self, *dim);
    const std::array<int64_t, 2> shape{rows.count, k};
    const bool is_last = self.dim() == 0 || *dim == self.dim() - 1;
    const at::Tensor to = is_last ? values.dense().view(shape) : empty(shape, self.scalar_type(), device);
    const at::Tensor to_places = is_last ? places.dense().view(shape) : empty(shape, c10::kLong, device);
    if (!write_first(rows, is_largest, is_sorted, to, to_places)) return false;
    if (!is_last) {
      const at::Tensor moved = values.dense().movedim(*dim, -1), moved_places = places.dense().movedim(*dim, -1);
      moved.copy_(to.view(moved.sizes()));
      moved_places.copy_(to_places.view(moved.sizes()));
    }
  }
  outputs->give(call);
  return true;
}

// One element of each row.
bool select_one(Call& call, int64_t given_dim, bool keeps_dim, Wanted wanted, int64_t rank) {
  const at::Tensor& self = call.tensor(0);
  const auto dim = dimension_of(given_dim, self);
  if (!has_order(self) || !dim) return false;
  const int64_t size = self.dim() == 0 ? 1 : self.size(*dim);
  if (size == 0 || rank < 0 || rank >= size) return false;
  at::DimVector sizes(self.sizes());
  if (self.dim() != 0) {
    sizes[*dim] = 1;
    if (!keeps_dim) sizes.erase(sizes.begin() + *dim);
  }
  const auto outputs = outputs_of(call, self, sizes);
  if (!outputs || !select_rows(rows_of(self, *dim), wanted, false, rank, outputs->values.dense(), outputs->places.dense())) return false;
  outputs->give(call);
  return true;
}

// self, k, dim, keepdim
bool kthvalue(Call& call) { return select_one(call, call[2].toInt(), call[3].toBool(), Wanted::at_rank, call[1].toInt() - 1); }

// self, dim, keepdim
template <Wanted wanted>
bool median_along(Call& call) {
  return select_one(call, call[1].toInt(), call[2].toBool(), wanted, 0);
}

// Over all elements.
template <Wanted wanted>
bool median(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!has_order(self) || self.numel() == 0) return false;
  const at::Tensor value = empty({}, self.scalar_type(), self.device().index());
  const at::Tensor place = empty({1}, c10::kLong, self.device().index());
  if (!select_rows(rows_of(self.reshape({-1}), 0), wanted, false, 0, value, place)) return false;
  call.give(value);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"topk", "topk.values"}, &topk);
  // torch generates the functional forms from these.
  add_operator(kernels, "kthvalue.values", &kthvalue, portable_counter("kthvalue"));
  add_operator(kernels, {"median.dim_values"}, &median_along<Wanted::median>);
  add_operator(kernels, {"nanmedian.dim_values"}, &median_along<Wanted::nanmedian>);
  add_operator(kernels, {"median"}, &median<Wanted::median>);
  add_operator(kernels, {"nanmedian"}, &median<Wanted::nanmedian>);
});

}  // namespace
}  // namespace select_impl
}  // namespace backplane::portable
