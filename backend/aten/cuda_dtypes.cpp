// aten/cuda_dtypes.cpp: dtypes that CUDA's kernels support and the CPU's do not, other than half types: histc of integers, abs and trace of
// bools, nansum of complex numbers. The fallback computes all other dtypes.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "dispatch/defaults.h"
#include "fallback/fallback.h"

namespace backplane::cuda_dtypes_impl {
namespace {

// Replaces the arguments by the result: written into the last argument, if that is an out=.
void answer(const c10::OperatorHandle& op, torch::jit::Stack* stack, at::Tensor result) {
  const auto& arguments = op.schema().arguments();
  if (arguments.back().is_out()) {
    at::Tensor out = stack->back().toTensor();
    TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
                " can't be cast to the desired output type ", out.scalar_type());
    at::native::resize_output(out, result.sizes());
    result = out.copy_(result);
  }
  stack->resize(stack->size() - arguments.size());
  stack->emplace_back(std::move(result));
}

c10::IValue& argument(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t i) {
  return (*stack)[stack->size() - op.schema().arguments().size() + i];
}

// The bin of each number in integers, as for CUDA; numbers outside the range are counted in an extra bin, which is dropped.
at::Tensor histogram(const at::Tensor& self, int64_t bins, int64_t low, int64_t high) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  at::Tensor counts = at::zeros({bins + 1}, self.options().dtype(c10::kLong));
  if (self.numel() > 0) {
    const at::Tensor values = self.reshape({-1}).to(c10::kLong);
    if (low == high) {
      low = values.min().item<int64_t>();
      high = values.max().item<int64_t>();
    }
    if (low == high) {
      --low;
      ++high;
    }
    TORCH_CHECK(low < high, "max must be larger than min");
    const at::Tensor place = values.sub(low).mul_(bins).div_(high - low, "floor").clamp_max_(bins - 1);
    const at::Tensor is_inside = values.ge(low).logical_and_(values.le(high));
    const at::Tensor places = at::where(is_inside, place, bins);
    counts.scatter_add_(0, places, at::ones_like(places));
  }
  return counts.narrow(0, 0, bins).to(self.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

void histc(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor self = argument(op, stack, 0).toTensor();
  if (!c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) return fallback::run(op, stack);
  const auto number = [&](size_t i) { return argument(op, stack, i).toScalar().to<int64_t>(); };
  answer(op, stack, histogram(self, argument(op, stack, 1).toInt(), number(2), number(3)));
}

void abs(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor self = argument(op, stack, 0).toTensor();
  if (self.scalar_type() != c10::kBool) return fallback::run(op, stack);
  answer(op, stack, self.clone());
}

void trace(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor self = argument(op, stack, 0).toTensor();
  if (self.scalar_type() != c10::kBool || self.dim() != 2) return fallback::run(op, stack);
  answer(op, stack, self.diagonal().sum());
}

// nansum(self, dim, keepdim, dtype)
void nansum(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor self = argument(op, stack, 0).toTensor();
  if (!self.is_complex()) return fallback::run(op, stack);
  const auto dims = argument(op, stack, 1).toOptional<std::vector<int64_t>>();
  const auto dtype = argument(op, stack, 3).toOptional<c10::ScalarType>();
  const at::OptionalIntArrayRef over = dims ? at::OptionalIntArrayRef(*dims) : std::nullopt;
  answer(op, stack, at::sum(self.masked_fill(self.isnan(), 0), over, argument(op, stack, 2).toBool(), dtype));
}

const Defaults defaults([](DefaultKernels& m) {
  if (!fallback::is_wanted()) return;
  m.impl_boxed<&histc>("histc");
  m.impl_boxed<&histc>("histc.out");
  m.impl_boxed<&abs>("abs.out");
  m.impl_boxed<&trace>("trace");
  m.impl_boxed<&nansum>("nansum");
  m.impl_boxed<&nansum>("nansum.out");
});

}  // namespace
}  // namespace backplane::cuda_dtypes_impl
