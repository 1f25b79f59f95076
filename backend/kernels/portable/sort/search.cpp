// kernels/portable/sort/search.cpp: searchsorted and bucketize.
#include <ATen/ops/full.h>

#include <optional>
#include <string>

#include "kernels/portable/unit/places.h"
#include "kernels/portable/unit/text.h"

namespace backplane::portable {
namespace search_impl {
namespace {

// The place of a value in its sorted row: the number of elements below it, or with `right` not above it.
bool search(Call& call, const at::Tensor& sorted, const at::Tensor& self, bool is_narrow, bool is_right, const at::Tensor* sorter) {
  if (!is_usable(sorted) || !is_usable(self) || sorted.scalar_type() != self.scalar_type() || sorted.device() != self.device() ||
      sorted.scalar_type() == c10::kBool || sorted.dim() == 0 || (sorted.dim() > 1 && sorted.dim() != self.dim())) {
    return false;
  }
  const int64_t dims = self.dim(), last = sorted.dim() - 1, size = sorted.size(last);
  for (int64_t d = 0; d < last; ++d) {
    if (sorted.size(d) != self.size(d)) return false;
  }
  if (sorter != nullptr && (!is_usable(*sorter) || sorter->scalar_type() != c10::kLong || sorter->sizes() != sorted.sizes())) return false;
  if (!call.is_functional() && (call.given()->is_alias_of(self) || call.given()->is_alias_of(sorted))) return false;
  at::Tensor out = call.output(self.sizes(), is_narrow ? c10::kInt : c10::kLong, self.device());
  if (!out.defined() || repeats_places(out)) return false;
  const auto rows = [&](const at::Tensor& tensor) {
    Strides strides(static_cast<size_t>(dims), 0);
    for (int64_t d = 0; d < last; ++d) strides[d] = tensor.stride(d);
    return strides;
  };
  Walk walk("searchsorted", self.sizes(), self.device().index());
  walk.write(out).read(self).read(sorted, rows(sorted));
  if (sorter != nullptr) walk.read(*sorter, rows(*sorter));
  walk.integer(size).integer(sorted.stride(last)).integer(sorter == nullptr ? 0 : sorter->stride(last)).compute_in(self.scalar_type());
  const char* const place = sorter == nullptr ? "i2 + middle * s1" : "i2 + p3[i3 + middle * s2] * s1";
  const char* const test = is_right ? "!(y > x)" : "!(y >= x)";
  const std::string body = join(
      "const C x = LOAD1(i1); i64 low = 0; i64 high = s0; while (low < high) { const i64 middle = (low + high) / 2; "
      "const C y = LOAD2(",
      place, "); if (", test, ") low = middle + 1; else high = middle; } STORE0(i0, low);");
  if (!walk.run(body)) return false;
  call.give(std::move(out));
  return true;
}

bool bucketize(Call& call) {
  return call.tensor(1).dim() == 1 && search(call, call.tensor(1), call.tensor(0), call[2].toBool(), call[3].toBool(), nullptr);
}

// `right` and `side` together; none if they contradict each other.
std::optional<bool> side_of(const Call& call) {
  const bool is_right = call[3].toBool();
  if (!call.has(4)) return is_right;
  const std::string_view side = call[4].toStringView();
  if ((side != "left" && side != "right") || (is_right && side == "left")) return std::nullopt;
  return side == "right";
}

bool searchsorted(Call& call) {
  const std::optional<bool> is_right = side_of(call);
  return is_right && search(call, call.tensor(0), call.tensor(1), call[2].toBool(), *is_right, call.has(5) ? &call.tensor(5) : nullptr);
}

// The same for a number, as a tensor of the sequence's dtype: the result has no dimension.
bool of_number(Call& call, size_t sequence, size_t value, bool is_right, bool is_narrow, const at::Tensor* sorter) {
  const at::Tensor& sorted = call.tensor(sequence);
  if (!is_usable(sorted) || sorted.dim() != 1 || call[value].isComplexDouble()) return false;
  const c10::Scalar number = call[value].toScalar();
  if (!c10::isFloatingType(sorted.scalar_type()) && !number.isIntegral(false)) return false;
  return search(call, sorted, at::full({}, number, sorted.options()), is_narrow, is_right, sorter);
}

bool bucketize_number(Call& call) { return of_number(call, 1, 0, call[3].toBool(), call[2].toBool(), nullptr); }

bool searchsorted_number(Call& call) {
  const std::optional<bool> is_right = side_of(call);
  return is_right && of_number(call, 0, 1, *is_right, call[2].toBool(), call.has(5) ? &call.tensor(5) : nullptr);
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"bucketize.Tensor", "bucketize.Tensor_out"}, &bucketize);
  add_operator(kernels, {"bucketize.Scalar"}, &bucketize_number);
  add_operator(kernels, {"searchsorted.Tensor", "searchsorted.Tensor_out"}, &searchsorted);
  add_operator(kernels, {"searchsorted.Scalar", "searchsorted.Scalar_out"}, &searchsorted_number);
});

}  // namespace
}  // namespace search_impl
}  // namespace backplane::portable
