// kernels/portable/index/move.cpp: copies to other places, and constants: fill_, flip, triangles, channel_shuffle.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/places.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace move_impl {
namespace {

// --- fill_, zero_ ---

bool fill_number(Call& call, const c10::Scalar& value) {
  const at::Tensor& self = call.tensor(0);
  if (self.is_non_overlapping_and_dense() || !is_usable(self) || repeats_places(self) || value.isComplex()) return false;
  const c10::ScalarType dtype = self.scalar_type();
  const auto number = value.to<double>();
  if (c10::isFloatingType(dtype)) {
    if (dtype != c10::kDouble && std::isfinite(number) && std::abs(number) > (dtype == c10::kHalf ? 65504.0 : 3.3895e38)) return false;
  } else if (dtype != c10::kBool && (!value.isIntegral(true) || wrapped(value.to<int64_t>(), dtype) != value.to<int64_t>())) {
    return false;
  }
  Walk walk("fill_", self.sizes(), self.device().index());
  walk.write(self);
  if (c10::isFloatingType(dtype)) {
    walk.number(rounded(number, dtype), dtype);
  } else {
    walk.integer(dtype == c10::kBool ? int64_t{number != 0} : value.to<int64_t>());
  }
  if (!walk.run("STORE0(i0, s0);")) return false;
  call.give(self);
  return true;
}

bool fill(Call& call) {
  if (is_complex(call.tensor(0).scalar_type()) && !call.tensor(0).is_non_overlapping_and_dense()) return write_parts(call, &fill, 1);
  return fill_number(call, call[1].toScalar());
}
bool zero(Call& call) { return fill_number(call, 0); }

// --- flip ---

bool flip(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_movable(self)) return false;
  Strides strides(self.strides().begin(), self.strides().end());
  int64_t offset = 0;
  c10::SmallVector<bool, 6> seen(static_cast<size_t>(self.dim()), false);
  for (int64_t d : call[1].toDimVector()) {
    if (d < -self.dim() || d >= self.dim()) return false;
    if (d < 0) d += self.dim();
    if (seen[d]) return false;
    seen[d] = true;
    if (self.size(d) == 0) continue;
    offset += (self.size(d) - 1) * self.stride(d);
    strides[d] = -strides[d];
  }
  at::Tensor out = at::empty_like(self);
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Walk walk("flip", self.sizes(), self.device().index());
  walk.write(out, bits, out.strides()).read(self, bits, strides, offset);
  if (!walk.run("p0[i0] = p1[i1];")) return false;
  call.give(std::move(out));
  return true;
}

// --- tril, triu ---

bool triangle(Call& call, bool is_upper) {
  const at::Tensor& self = call.tensor(0);
  const int64_t dims = self.dim();
  if (!is_movable(self) || dims < 2 || self.scalar_type() == c10::kComplexDouble) return false;
  if (!call.is_functional() && (repeats_places(*call.given()) || (call.form() == Call::Form::out && call.given()->is_alias_of(self)))) {
    return false;
  }
  at::Tensor out = call.output(self.sizes(), self.scalar_type(), self.device());
  if (!out.defined()) return false;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Strides behind(static_cast<size_t>(dims), 0);  // the column minus the row
  behind[dims - 1] = 1;
  behind[dims - 2] = -1;
  Walk walk(is_upper ? Literal("triu") : Literal("tril"), self.sizes(), self.device().index());
  walk.write(out, bits, out.strides()).read(self, bits, self.strides()).count(behind).integer(call[1].toInt());
  if (!walk.run(is_upper ? Literal("p0[i0] = i2 >= s0 ? p1[i1] : 0;") : Literal("p0[i0] = i2 <= s0 ? p1[i1] : 0;"))) return false;
  call.give(std::move(out));
  return true;
}

bool tril(Call& call) { return triangle(call, false); }
bool triu(Call& call) { return triangle(call, true); }

// --- channel_shuffle ---

// As torch's kernel, a copy through views; the CPU's is no composition.
bool channel_shuffle(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const int64_t groups = call[1].toInt();
  if (!is_movable(self) || self.dim() < 3 || groups < 1 || self.size(1) % groups != 0 || self.numel() == 0) return false;
  Strides sizes{self.size(0), groups, self.size(1) / groups};
  for (int64_t d = 2; d < self.dim(); ++d) sizes.push_back(self.size(d));
  const at::MemoryFormat format = self.suggest_memory_format();
  call.give(self.contiguous().view(sizes).transpose(1, 2).contiguous().view(self.sizes()).contiguous(format));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"fill_.Scalar"}, &fill);
  add_operator(kernels, {"zero_"}, &zero);
  add_operator(kernels, {"flip"}, &flip);
  add_operator(kernels, {"tril", "tril.out", "tril_"}, &tril);
  add_operator(kernels, {"triu", "triu.out", "triu_"}, &triu);
  add_operator(kernels, {"channel_shuffle"}, &channel_shuffle);
});

}  // namespace
}  // namespace move_impl
}  // namespace backplane::portable
