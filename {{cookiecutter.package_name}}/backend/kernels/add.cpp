// backend/kernels/add.cpp: aten::add.Tensor for all real dtypes; complex ones are left to the CPU fallback. The example to start from: one
// operator family a file, kernel, limits and registration together.
#include <ATen/ops/add_meta.h>
#include <backplane/host/elementwise.h>
#include <backplane/structured.h>

namespace {

struct Add : backplane::HostKernel {
  // The dtypes to compute in; of mixed operands, what they are promoted to. Other calls go to the fallback.
  using Takes = backplane::NumbersAndBool;

  // ATen has checked the arguments, made or resized the output, and worked out how to walk the operands. elementwise() queues a C++
  // function in the stream's order: the base HostKernel says so, and asks whether the driver can. A vendor's kernel has no such base, and
  // calls the vendor's API here, in a backplane::NativeLaunch, with the operands' addresses (the SDK's docs/kernels.md).
  static void run(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Scalar& alpha, const at::Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      backplane::elementwise<T, T, T>(iter, [alpha = alpha.to<T>()](T a, T b) { return a + alpha * b; });
    });
  }
};

}  // namespace

// torch's own wrappers lead add.Scalar, x + 2 and x += y here. Registered for PrivateUse1, so autograd works as on any device.
BACKPLANE_KERNELS(aten, m) { backplane::structured<at::meta::structured_add_Tensor, Add>(m, {"add.Tensor", "add.out", "add_.Tensor"}); }
