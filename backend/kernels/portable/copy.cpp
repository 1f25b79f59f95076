// kernels/portable/copy.cpp: copies on one device that are no run of bytes: other strides, another dtype. `copy_`, `contiguous` and what
// is built on them end here.
#include "tensor/copy.h"
#include "dispatch/defaults.h"
#include "kernels/portable/call.h"
#include "kernels/portable/dialect.h"
#include "kernels/portable/elementwise.h"

namespace backplane::portable {
namespace copy_impl {
namespace {

bool can_run() { return can_compile() && kernel_policy() != KernelPolicy::off; }

bool run(at::TensorIteratorBase& iter) {
  static KernelSlots slots;
  static auto& counter = portable_counter("copy_");
  Computation what{"copy", iter.dtype(1)};
  Expression expression{"x", 0};
  expression.is_exact = true;
  if (iter.dtype(0) == iter.dtype(1)) {
    what.common = bits_of(iter.dtype(0));
    what.bits = true;
  }
  if (dialect_name(what.common) == nullptr || !compute(iter, what, expression, slots)) return false;
  counter.count();
  return true;
}

const Defaults registered([](DefaultKernels&) { set_portable_copy({&can_run, &run}); });

}  // namespace
}  // namespace copy_impl
}  // namespace backplane::portable
