// aten/ldexp.cpp: floats times powers of two with integer exponents, on the CPU. torch's composition for other devices multiplies by the
// power, which may overflow where the product does not.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>

#include "dispatch/defaults.h"
#include "fallback/fallback.h"

namespace backplane::ldexp_impl {
namespace {

// self, other, optionally out
void ldexp(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t arguments = op.schema().arguments().size();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(arguments);
  const at::Tensor self = first[0].toTensor(), other = first[1].toTensor();
  if (c10::isFloatingType(self.scalar_type()) && c10::isIntegralType(other.scalar_type(), false)) return fallback::run(op, stack);
  const bool is_inplace = op.operator_name().name == "aten::ldexp_";
  at::Tensor out = is_inplace ? self : arguments == 3 ? first[2].toTensor() : at::Tensor();
  if (out.defined() && c10::isIntegralType(out.scalar_type(), true)) return fallback::run(op, stack);  // the CPU raises
  const at::Tensor power = at::pow(c10::Scalar(2.0), other);
  const at::Tensor result = out.defined() ? at::mul_out(out, self, power) : at::mul(self, power);
  stack->erase(first, stack->end());
  stack->emplace_back(result);
}

const Defaults defaults([](DefaultKernels& m) {
  if (!fallback::is_wanted()) return;
  for (const char* name : {"ldexp.Tensor", "ldexp.out", "ldexp_"}) m.impl_boxed<&ldexp>(name);
});

}  // namespace
}  // namespace backplane::ldexp_impl
