// aten/convolution.cpp: the overrideable convolution. The CPU computes it, with its own choice of algorithm and, for some dtypes, of
// format, until a vendor registers the two overrideable operators.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <backplane/convolution.h>

#include "dispatch/defaults.h"
#include "fallback/fallback.h"

namespace backplane::convolution_impl {
namespace {

c10::MemoryFormat format_of(const c10::IValue& input, const c10::IValue& weight) {
  return convolution_format(input.toTensor(), weight.toTensor());
}

void bring_into(c10::MemoryFormat format, c10::IValue& result) {
  if (result.isTensor() && result.toTensor().defined()) result = result.toTensor().contiguous(format);
}

// The arguments of the general operator.
void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  constexpr size_t kArguments = 9;  // input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
  const auto first = stack->end() - kArguments;
  const c10::MemoryFormat format = format_of(first[0], first[1]);
  fallback::run(op, stack);
  bring_into(format, stack->back());
}

// The general operator has one more argument, before the last seven: the sizes of the bias.
void convolution_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  // grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask
  constexpr size_t kArguments = 10;
  const auto first = stack->end() - kArguments;
  const c10::MemoryFormat format = format_of(first[1], first[2]);
  const at::Tensor& weight = first[2].toTensor();
  const bool transposed = first[6].toBool();
  const int64_t out_channels = transposed ? weight.size(1) * first[8].toInt() : weight.size(0);
  stack->insert(first + 3, c10::IValue(std::vector<int64_t>{out_channels}));
  fallback::run(op, stack);
  for (auto result = stack->end() - 3; result != stack->end() - 1; ++result) bring_into(format, *result);  // the bias is a vector
}

const Defaults defaults([](DefaultKernels& m) {
  m.impl_boxed<&convolution>("convolution_overrideable");
  m.impl_boxed<&convolution_backward>("convolution_backward_overrideable");
});

}  // namespace
}  // namespace backplane::convolution_impl
