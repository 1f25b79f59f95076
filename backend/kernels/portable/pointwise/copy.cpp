// kernels/portable/pointwise/copy.cpp: copies on one device that change strides or dtype. `copy_`, `contiguous` and what is built on them
// use these.
#include "tensor/copy.h"
#include "dispatch/defaults.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"

namespace backplane::portable {
namespace copy_impl {
namespace {

KernelCounter& counter() {
  static auto& instance = portable_counter("copy_");
  return instance;
}

bool can_run() { return can_compile() && kernel_policy() != KernelPolicy::off; }

bool run(at::TensorIteratorBase& iter) {
  const bool conjugates = iter.tensor(0).is_conj() != iter.tensor(1).is_conj();
  const bool negates = iter.tensor(0).is_neg() != iter.tensor(1).is_neg();
  const int variant = conjugates | negates << 1;
  Computation what{"copy", iter.dtype(1)};
  if (conjugates && !is_complex(what.common)) return false;  // a real operand, written through a conjugate view
  constexpr Literal real[] = {"x", "x", "-x", "-x"};
  constexpr Literal complex[] = {"x", "c_conj(x)", "c_neg(x)", "c_neg(c_conj(x))"};
  Expression expression{(is_complex(what.common) ? complex : real)[variant], 0};
  expression.is_exact = true;
  if (iter.dtype(0) == iter.dtype(1) && variant == 0) {
    what.common = bits_of(iter.dtype(0));
    what.bits = true;
  }
  if (!is_pointwise(what.common) || !compute(iter, what, expression)) return false;
  counter().count();
  return true;
}

const Defaults registered([](DefaultKernels&) {
  counter();
  set_portable_copy({&can_run, &run});
});

}  // namespace
}  // namespace copy_impl
}  // namespace backplane::portable
