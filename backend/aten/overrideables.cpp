// aten/overrideables.cpp: operators that torch hands to a device whole, for which the CPU's own counterpart stands in, and small ones that
// need no kernel of the device.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/tensors.h"

namespace backplane::overrideables_impl {
namespace {

// Runs the fallback of another operator, whose arguments are the same.
template <const char* name>
void by_fallback_of(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  fallback::run(op, stack);
}

void by_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { fallback::run(op, stack); }

constexpr char kConvolution[] = "aten::convolution";

// The backward of torch's general convolution takes one argument more, before the last six: the sizes of the bias.
void convolution_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  constexpr size_t kArguments =
      10;  // grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask
  auto first = stack->end() - kArguments;
  const at::Tensor& weight = first[2].toTensor();
  const bool transposed = first[6].toBool();
  const int64_t out_channels = transposed ? weight.size(1) * first[8].toInt() : weight.size(0);
  stack->insert(first + 3, c10::IValue(std::vector<int64_t>{out_channels}));
  fallback::run(op, stack);
}

// Scaled dot product attention by its composition of matmul and softmax, which are differentiable on every device.
int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool,
                         std::optional<double>, bool) {
  constexpr int64_t kMath = 0;  // at::SDPBackend::math
  return kMath;
}

// As the CPU's, but its mask is drawn from the device's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0) return {input, at::empty_like(input)};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(c10::kBool))};
  const double keep = 1 - p;
  at::Tensor mask = at::empty(input.sizes(), input.options().dtype(c10::kBool));
  mask.bernoulli_(keep);
  return {input.mul(mask).mul_(keep == 0 ? 0.0 : 1.0 / keep), mask};
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::getDeviceAllocator(kDevice)->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&by_fallback_of<kConvolution>>());
  m.impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("record_stream", TORCH_FN(record_stream));
}

// torch composes these of other operators for an unknown device; the CPU's own kernels are faster and give the CPU's very results.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  if (!fallback::is_wanted()) return;
  m.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&by_fallback>());
  m.impl("native_group_norm", torch::CppFunction::makeFromBoxedFunction<&by_fallback>());
}

}  // namespace backplane::overrideables_impl
