// kernels/portable/index/unfold.cpp: the gradient of Tensor.unfold: each element sums the windows that contain it.
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace unfold_impl {
namespace {

// grad_in, input_sizes, dim, size, step
bool unfold_backward(Call& call) {
  const at::Tensor& grad = call.tensor(0);
  if (is_complex(grad.scalar_type())) return compute_each_part(call, &unfold_backward);
  auto sizes = call[1].toDimVector();
  const int64_t dims = static_cast<int64_t>(sizes.size()), size = call[3].toInt(), step = call[4].toInt();
  int64_t dim = call[2].toInt();
  const int64_t most = dims == 0 ? 1 : dims;
  if (!is_usable(grad) || !c10::isFloatingType(grad.scalar_type()) || grad.dim() != dims + 1 || dim < -most || dim >= most || size < 0 ||
      step <= 0) {
    return false;
  }
  if (dim < 0) dim += most;
  const at::Tensor result = empty(sizes, grad.scalar_type(), grad.device().index());
  if (dims == 0) sizes = {1};  // one window of one or no element
  const int64_t windows = dims == 0 ? 1 : grad.size(dim);
  if (grad.size(-1) != size || size > sizes[dim] || (dims != 0 && windows != (sizes[dim] - size) / step + 1)) return false;
  c10::SmallVector<int64_t, 6> strides(sizes.size(), 0), along(sizes.size(), 0);
  for (int64_t d = 0; d < dims; ++d) strides[d] = d == dim ? 0 : grad.stride(d);
  along[dim] = 1;
  Walk walk("unfold_backward", sizes, grad.device().index());
  walk.write(result, dense_strides(sizes)).read(grad, strides).count(along);
  walk.integer(windows).integer(size).integer(step).integer(dims == 0 ? 0 : grad.stride(dim)).integer(grad.stride(-1));
  walk.compute_in(grad.scalar_type());
  if (!walk.run("C sum = 0; for (i64 k = i2 < s1 ? 0 : (i2 - s1) / s2 + 1; k < s0 && k * s2 <= i2; ++k) "
                "sum += LOAD1(i1 + k * s3 + (i2 - k * s2) * s4); STORE0(i0, sum);")) {
    return false;
  }
  return give(call, result, {grad});
}

const Defaults registered([](DefaultKernels& kernels) { add_operator(kernels, {"unfold_backward"}, &unfold_backward); });

}  // namespace
}  // namespace unfold_impl
}  // namespace backplane::portable
