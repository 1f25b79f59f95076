// aten/fft_half.cpp: Fourier transforms of float16 and complex32, computed in float32 and rounded once (fallback/widening.h).
//
// torch composes torch.fft of a few kernels, and refuses half types above them on every device but CUDA. So the operators themselves are
// registered, above autograd too: the composition here records the graph. A kernel of the vendor, such as _fft_c2c, gets float32.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "dispatch/core_kernels.h"
#include "fallback/fallback.h"
#include "fallback/widening.h"

namespace backplane::fft_half_impl {
namespace {

// torch's composition, registered under the key of a device that does not exist.
void compose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse3), stack);
}

// The tensor is the first argument, out= the last.
void transform(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  c10::IValue& first = (*stack)[stack->size() - count];
  const at::Tensor self = first.toTensor();
  const c10::ScalarType dtype = self.scalar_type();
  if ((dtype != c10::kHalf && dtype != c10::kComplexHalf) || !fallback::widening()) return compose(op, stack);
  first = self.to(fallback::widened(dtype));
  at::Tensor out;
  if (op.schema().arguments().back().is_out()) {
    out = stack->back().toTensor();
    const c10::ScalarType wide = fallback::widened(out.scalar_type());
    if (wide != out.scalar_type()) stack->back() = at::empty({0}, out.options().dtype(wide));
  }
  compose(op, stack);
  const at::Tensor result = stack->back().toTensor();
  if (!out.defined()) {
    stack->back() = result.to(fallback::narrowed(result.scalar_type(), c10::kHalf));
  } else if (!out.is_same(result)) {
    at::native::resize_output(out, result.sizes());
    stack->back() = out.copy_(result);
  }
  fallback::count_widened(op);
}

void register_all(CoreKernels& m) {
  for (const char* name :
       {"fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft", "fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2",
        "fft_hfft2", "fft_ihfft2", "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn", "fft_hfftn", "fft_ihfftn"}) {
    m.impl_boxed<&transform>(name);
    m.impl_boxed<&transform>((std::string(name) + ".out").c_str());
  }
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) { register_all(m); }
BACKPLANE_CORE_KERNELS(AutogradPrivateUse1, m) { register_all(m); }

}  // namespace backplane::fft_half_impl
