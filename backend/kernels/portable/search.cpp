// kernels/portable/search.cpp: where a value goes into a sorted row.
#include <string>

#include "kernels/portable/places.h"

namespace backplane::portable {
namespace search_impl {
namespace {

// Where a value goes into its sorted row: the number of elements below it, or not above it with `right`.
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
  static auto& slots = *new KernelSlots;
  Walk walk("searchsorted", self.sizes(), self.device().index());
  walk.write(out).read(self).read(sorted, rows(sorted));
  if (sorter != nullptr) walk.read(*sorter, rows(*sorter));
  walk.integer(size).integer(sorted.stride(last)).integer(sorter == nullptr ? 0 : sorter->stride(last)).compute_in(self.scalar_type());
  const std::string place = sorter == nullptr ? "i2 + middle * s1" : "i2 + p3[i3 + middle * s2] * s1";
  const std::string test = is_right ? "!(y > x)" : "!(y >= x)";
  const std::string body =
      "const C x = LOAD1(i1); i64 low = 0; i64 high = s0; while (low < high) { const i64 middle = (low + high) / 2; "
      "const C y = LOAD2(" +
      place + "); if (" + test + ") low = middle + 1; else high = middle; } STORE0(i0, low);";
  if (!walk.run(body.c_str(), slots, (is_right ? 1 : 0) + (sorter == nullptr ? 0 : 2))) return false;
  call.give(std::move(out));
  return true;
}

bool bucketize(Call& call) {
  return call.tensor(1).dim() == 1 && search(call, call.tensor(1), call.tensor(0), call[2].toBool(), call[3].toBool(), nullptr);
}

bool searchsorted(Call& call) {
  const bool has_side = call.has(4);
  const bool is_right = has_side ? call[4].toStringView() == "right" : call[3].toBool();
  if (has_side && (call[4].toStringView() != "left") != is_right) return false;
  if (has_side && call[3].toBool() && !is_right) return false;
  return search(call, call.tensor(0), call.tensor(1), call[2].toBool(), is_right, call.has(5) ? &call.tensor(5) : nullptr);
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"bucketize.Tensor", "bucketize.Tensor_out"}, &bucketize);
  add_operator(kernels, {"searchsorted.Tensor", "searchsorted.Tensor_out"}, &searchsorted);
});

}  // namespace
}  // namespace search_impl
}  // namespace backplane::portable
