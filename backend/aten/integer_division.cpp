// aten/integer_division.cpp: the smallest integer divided by -1, truncated. torch's CPU kernel traps there, which ends the process; here
// the quotient wraps, as for the CPU's narrower integers and its other divisions.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/div.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/where.h>

#include "dispatch/defaults.h"
#include "fallback/fallback.h"

namespace backplane::integer_division_impl {
namespace {

bool is_truncated(const c10::IValue& mode) { return !mode.isNone() && mode.toStringView() == "trunc"; }

// Whether the CPU divides in the widest integer type, and any divisor is -1.
bool may_trap(const at::Tensor& self, const at::Tensor& other) {
  if (!c10::isIntegralType(self.scalar_type(), true) || !c10::isIntegralType(other.scalar_type(), true)) return false;
  const c10::ScalarType common = at::result_type(self, other);
  if (common != c10::kInt && common != c10::kLong) return false;
  if (other.dim() != 0 && other.device() != self.device() && self.dim() != 0) return false;  // an error, which the fallback raises
  return other.eq(-1).any().item().toBool();
}

// self, other, rounding_mode, optionally out. Elements that are divided by -1 are negated instead.
void div(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const at::Tensor self = first[0].toTensor(), other = first[1].toTensor();
  if (!is_truncated(first[2]) || !may_trap(self, other)) return fallback::run(op, stack);
  const at::Tensor by_minus_one = other.eq(-1);
  const at::Tensor a = self.to(at::result_type(self, other)), b = other.to(a.scalar_type());
  const at::Tensor dividend = other.dim() == 0 ? a.neg() : at::where(by_minus_one, a.neg(), a);
  const at::Tensor divisor = other.dim() == 0 ? b.neg() : b.masked_fill(by_minus_one, 1);
  const bool is_inplace = op.operator_name().name == "aten::div_";
  if (!is_inplace) {
    first[0] = dividend;
    first[1] = divisor;
    return fallback::run(op, stack);
  }
  if (dividend.sizes() != self.sizes()) return fallback::run(op, stack);  // an error
  at::Tensor result = self;
  at::div_out(result, dividend, divisor, "trunc");
  stack->erase(first + 1, stack->end());
}

const Defaults defaults([](DefaultKernels& m) {
  if (!fallback::is_wanted()) return;
  for (const char* name : {"div.Tensor_mode", "div.out_mode", "div_.Tensor_mode"}) m.impl_boxed<&div>(name);
});

}  // namespace
}  // namespace backplane::integer_division_impl
