// kernels/portable/pointwise/cross.cpp: the cross product of vectors of three elements.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <c10/core/WrapDimMinimal.h>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace cross_impl {
namespace {

// self, other, dim
bool cross(Call& call) {
  const at::Tensor &self = call.tensor(0), &other = call.tensor(1);
  const int64_t dims = self.dim();
  int64_t dim = call[2].toInt();
  const bool has_complex = has_parts(self) && has_parts(other);
  if (!(has_complex || (is_usable(self) && is_like(other, self))) || self.scalar_type() == c10::kBool || other.dim() != dims ||
      dim < -dims || dim >= dims) {
    return false;
  }
  dim = c10::maybe_wrap_dim(dim, dims);
  if (self.size(dim) != 3 || other.size(dim) != 3 || !at::are_expandable(self.sizes(), other.sizes())) return false;
  if (has_complex) {
    const at::Tensor product = self.roll(-1, dim) * other.roll(-2, dim) - self.roll(-2, dim) * other.roll(-1, dim);
    return give(call, product, {self, other});
  }
  const std::vector<int64_t> sizes = at::infer_size(self.sizes(), other.sizes());
  const at::Tensor result = empty(sizes, self.scalar_type(), self.device().index());
  const auto x = broadcast_strides(self, sizes), y = broadcast_strides(other, sizes);
  std::vector<int64_t> others = sizes;
  others[dim] = 1;
  Walk walk("cross", others, self.device().index());
  walk.write(result).read(self, x).read(other, y);
  walk.integer(result.stride(dim)).integer(x[dim]).integer(y[dim]).compute_in(self.scalar_type());
  if (!walk.run("const C a = LOAD1(i1); const C b = LOAD1(i1 + s1); const C c = LOAD1(i1 + 2 * s1); "
                "const C d = LOAD2(i2); const C e = LOAD2(i2 + s2); const C f = LOAD2(i2 + 2 * s2); "
                "STORE0(i0, b * f - c * e); STORE0(i0 + s0, c * d - a * f); STORE0(i0 + 2 * s0, a * e - b * d);")) {
    return false;
  }
  return give(call, result, {self, other});
}

const Defaults registered([](DefaultKernels& kernels) { add_operator(kernels, {"linalg_cross", "linalg_cross.out"}, &cross); });

}  // namespace
}  // namespace cross_impl
}  // namespace backplane::portable
