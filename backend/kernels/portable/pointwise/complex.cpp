// kernels/portable/pointwise/complex.cpp: complex numbers from two parts, written by real kernels, and materialized conjugates.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/view_as_real.h>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"

namespace backplane::portable {
namespace complex_impl {
namespace {

// Writes the two expressions of the arguments x and y as the parts of complex numbers.
bool write(Call& call, Literal name, Literal real, Literal imaginary) {
  const at::Tensor &first = call.tensor(0), &second = call.tensor(1);
  const c10::ScalarType part = first.scalar_type();
  if (!is_usable(first) || !is_like(second, first) || (part != c10::kFloat && part != c10::kDouble) ||
      !at::are_expandable(first.sizes(), second.sizes())) {
    return false;
  }
  at::Tensor out;
  if (const at::Tensor* given = call.given()) {
    const std::vector<int64_t> sizes = at::infer_size(first.sizes(), second.sizes());
    if (given->scalar_type() != c10::toComplexType(part) || given->device() != first.device() || given->is_conj() ||
        (given->sizes() != at::IntArrayRef(sizes) && given->numel() != 0) || given->is_alias_of(first) || given->is_alias_of(second)) {
      return false;
    }
    at::native::resize_output(*given, sizes);
    out = *given;
  } else {
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).declare_static_dtype_and_device(c10::toComplexType(part), first.device());
    out = config.add_owned_output(at::Tensor()).add_const_input(first).add_const_input(second).build().output();
  }
  const at::Tensor parts = at::view_as_real(out);
  if (!apply(name, parts.select(-1, 0), {first, second}, real, {}, part) ||
      !apply(name, parts.select(-1, 1), {first, second}, imaginary, {}, part)) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

// real, imag
bool complex(Call& call) { return write(call, "complex", "x", "y"); }

// abs, angle
bool polar(Call& call) { return write(call, "polar", "x * m_cos(y)", "x * m_sin(y)"); }

bool conj_physical(Call& call) {
  const at::Tensor self = call.tensor(0), out = *call.given();
  if (!self.is_complex() || out.scalar_type() != self.scalar_type() || out.device() != self.device()) return false;
  if (!out.is_same(self)) {
    at::Tensor result = out;
    at::TensorIterator::unary_op(result, self);  // an empty result gets the strides of self
  }
  out.copy_(self.conj());
  call.give(out);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"complex", "complex.out"}, &complex);
  add_operator(kernels, {"conj_physical.out", "conj_physical_"}, &conj_physical);
  add_operator(kernels, {"polar", "polar.out"}, &polar);
});

}  // namespace
}  // namespace complex_impl
}  // namespace backplane::portable
