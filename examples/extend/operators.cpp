// extend/operators.cpp: two ways to an operator of one's own that need no structured kernel: ATen's dispatch stub, and replacing an
// operator that the core computes until a vendor does.
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/sub.h>
#include <backplane/host/elementwise.h>
#include <torch/library.h>

#include <atomic>
#include <cmath>

namespace {

std::atomic<int64_t> stub_calls{0};
std::atomic<int64_t> losses{0};

// ATen's operator has checked the arguments, resized the output and promoted the dtypes; the iterator says how to walk the operands.
void abs_kernel(at::TensorIteratorBase& iter) {
  TORCH_CHECK_NOT_IMPLEMENTED(iter.common_dtype() == c10::kFloat && backplane::can_launch(), "abs on extdevice takes float32, not ",
                              iter.common_dtype(), "; convert the tensor with .float(), or extend abs_kernel in operators.cpp");
  ++stub_calls;
  backplane::elementwise<float, float>(iter, [](float value) { return std::abs(value); });
}

// The core gives this whole to the CPU. Operators of the core that a vendor may replace are registered after the vendor's, where there are
// none (backend/dispatch/defaults.h), so this line is all.
at::Tensor mse_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction) {
  ++losses;
  const at::Tensor squares = at::sub(self, target).square();
  if (reduction == at::Reduction::None) return squares;
  return reduction == at::Reduction::Mean ? squares.mean() : squares.sum();
}

}  // namespace

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(abs_stub, &abs_kernel)
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("abs.out", TORCH_FN(at::native::abs_out));  // abs and abs_ are composed of it
  m.impl("mse_loss", TORCH_FN(mse_loss));
}

// For the test.
TORCH_LIBRARY_FRAGMENT(extdevice, m) {
  m.def("stub_calls", [] { return stub_calls.load(); });
  m.def("losses_computed", [] { return losses.load(); });
}
