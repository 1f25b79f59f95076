// aten/convolution.cpp: the convolution that torch hands to a device whole. The CPU computes it, by its own choice of algorithm, until a
// vendor registers the two overrideable operators.
#include <ATen/core/dispatch/Dispatcher.h>

#include "aten/defaults.h"
#include "aten/fallback.h"

namespace backplane::convolution_impl {
namespace {

// The same arguments as the general operator's.
void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  fallback::run(op, stack);
}

// The general operator takes one argument more, before the last seven: the sizes of the bias.
void convolution_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  constexpr size_t kArguments =
      10;  // grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask
  const auto first = stack->end() - kArguments;
  const at::Tensor& weight = first[2].toTensor();
  const bool transposed = first[6].toBool();
  const int64_t out_channels = transposed ? weight.size(1) * first[8].toInt() : weight.size(0);
  stack->insert(first + 3, c10::IValue(std::vector<int64_t>{out_channels}));
  fallback::run(op, stack);
}

const Defaults defaults([](DefaultKernels& m) {
  m.impl_boxed<&convolution>("convolution_overrideable");
  m.impl_boxed<&convolution_backward>("convolution_backward_overrideable");
});

}  // namespace
}  // namespace backplane::convolution_impl
