// kernels/portable/reduction/histogram.cpp: bincount and histc, which count into places as index_add_ does.
#include <ATen/core/Tensor.h>

#include <cmath>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace histogram_impl {
namespace {

at::Tensor zeros(int64_t count, c10::ScalarType dtype, c10::DeviceIndex device) { return empty({count}, dtype, device).zero_(); }

// counts[place] += 1 for all places.
at::Tensor counts_of(const at::Tensor& places, int64_t count) {
  const at::Tensor one = empty({1}, c10::kLong, places.device().index()).fill_(1);
  return zeros(count, c10::kLong, places.device().index()).index_add_(0, places, one.expand({places.numel()}));
}

// bincount(self, weights, minlength). The size of the result is read back.
bool bincount(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const int64_t least = call[2].toInt();
  if (!is_usable(self) || !c10::isIntegralType(self.scalar_type(), false) || self.dim() != 1 || least < 0) return false;
  const c10::DeviceIndex device = self.device().index();
  at::Tensor weights;
  if (call.has(1)) {
    weights = call.tensor(1);
    if (!is_usable(weights) || weights.device() != self.device() || weights.dim() != 1 || weights.numel() != self.numel()) return false;
    if (weights.scalar_type() != c10::kFloat && !has_dtype(target_of(device), c10::kDouble)) return false;
  }
  if (self.numel() == 0) {
    call.give(zeros(least, c10::kLong, device));
    return true;
  }
  if (self.min().item().toLong() < 0) return false;
  const int64_t count = std::max(least, self.max().item().toLong() + 1);
  const at::Tensor places = self.scalar_type() == c10::kInt ? self : self.to(c10::kLong);
  if (!weights.defined()) {
    call.give(counts_of(places, count));
    return true;
  }
  if (weights.scalar_type() != c10::kFloat) weights = weights.to(c10::kDouble);
  call.give(zeros(count, weights.scalar_type(), device).index_add_(0, places, weights));
  return true;
}

// histc(self, bins, min, max), and its out= form. If min is max, the range is read back.
bool histc(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const int64_t bins = call[1].toInt();
  const c10::Scalar min = call[2].toScalar(), max = call[3].toScalar();
  const c10::ScalarType dtype = self.scalar_type();
  if (!is_usable(self) || !c10::isFloatingType(dtype) || bins <= 0 || min.isComplex() || max.isComplex()) return false;
  double low = min.toDouble(), high = max.toDouble();
  if (low == high && self.numel() != 0) {
    low = self.min().item().toDouble();
    high = self.max().item().toDouble();
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  low = rounded(low, dtype);
  high = rounded(high, dtype);
  if (!std::isfinite(low) || !std::isfinite(high) || !(low < high)) return false;
  if (!call.is_functional() && call.given()->is_alias_of(self)) return false;
  const c10::DeviceIndex device = self.device().index();
  at::Tensor out = call.output({bins}, dtype, self.device());
  if (!out.defined()) return false;
  if (self.numel() == 0) {
    call.give(out.zero_());
    return true;
  }
  // Numbers out of range, and NaN, go after the last bin. Half types are computed as in torch, rounded at each step.
  const at::Tensor places = empty(self.sizes(), c10::kLong, device);
  const std::string r = join("bp_to_", dialect_name(dtype));
  Walk walk("histc", self.sizes(), device);
  walk.write(places).read(self).integer(bins).number(low, dtype).number(high, dtype);
  const std::string body =
      join("const C x = LOAD1(i1); const C width = ", r, "(s2 - s1); const C all = ", r, "((C)s0); const C scaled = ", r, "(", r,
           "(x - s1) * all); i64 at = s0; if (x >= s1 && x <= s2) { at = (i64)(", r,
           "(scaled / width)); at = at < s0 ? at : s0 - 1; } "
           "p0[i0] = at;");
  if (!walk.run(body)) return false;
  out.copy_(counts_of(places.view({-1}), bins + 1).narrow(0, 0, bins));
  call.give(std::move(out));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"bincount"}, &bincount);
  add_operator(kernels, {"histc", "histc.out"}, &histc);
});

}  // namespace
}  // namespace histogram_impl
}  // namespace backplane::portable
