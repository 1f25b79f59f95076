// aten/overrideables.cpp: small operators that a device must have, and those that the CPU computes better than torch's composition.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pixel_unshuffle_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/library.h>

#include "dispatch/defaults.h"
#include "fallback/fallback.h"
#include "tensor/tensors.h"
#include "torch/compat.h"

namespace backplane::overrideables_impl {
namespace {

void by_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { fallback::run(op, stack); }

// As on the CPU, but the mask is drawn from the device's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0) return {input, at::empty_like(input)};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(c10::kBool))};
  const double keep = 1 - p;
  at::Tensor mask = at::empty_like(input, input.options().dtype(c10::kBool));
  mask.bernoulli_(keep);
  return {input.mul(mask).mul_(keep == 0 ? 0.0 : 1.0 / keep), mask};
}

// torch's composition returns a contiguous result; the CPU, and the fake tensors of all devices, one in the argument's format. The fakes of
// pixel_shuffle distinguish devices from the CPU: there the composition is right.
at::Tensor pixel_unshuffle(const at::Tensor& self, int64_t factor) {
  return at::native::math_pixel_unshuffle(self, factor).contiguous(self.suggest_memory_format());
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::getDeviceAllocator(kDevice)->recordStream(self.storage().data_ptr(), stream);
}

const Defaults defaults([](DefaultKernels& m) {
  m.impl("native_dropout", &native_dropout);
  m.impl("pixel_unshuffle", &pixel_unshuffle);
  m.impl("record_stream", &record_stream);
  if (!fallback::is_wanted()) return;
  const auto cpu = [&m](const char* name) { m.impl_boxed<&by_fallback>(name); };
  // torch composes these of other operators for an unknown device; the CPU's own kernels are faster and return exactly the CPU's results.
  cpu("native_group_norm");
  for (const char* name : {"addr", "addr_", "addr.out", "all.dims", "all.dims_out", "any.dims", "any.dims_out", "narrow_copy"}) cpu(name);
  cpu("conj_physical_");
  for (const char* name : compat::kComposedOtherwise) cpu(name);
});

}  // namespace

// For a tensor with a lazy bit torch would record a temporary, and write the original to the place of a result that this operator does not
// have: on the stack, before its begin.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("record_stream", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("record_stream", torch::CppFunction::makeFallthrough()); }
// A zero tensor has no memory to keep alive.
TORCH_LIBRARY_IMPL(aten, ZeroTensor, m) { m.impl("record_stream", torch::CppFunction::makeFallthrough()); }

}  // namespace backplane::overrideables_impl
