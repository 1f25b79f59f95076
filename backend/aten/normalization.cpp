// aten/normalization.cpp: batch and layer normalization on the CPU, with the statistics that torch expects of a device.
//
// torch's CPU kernel of batch norm saves no statistics in evaluation, and saves those of half types in a half type. Other devices of torch,
// and the fake tensors of all, have one per channel, in the dtype of computation.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "dispatch/defaults.h"
#include "fallback/fallback.h"

namespace backplane::normalization_impl {
namespace {

c10::ScalarType compute_dtype(c10::ScalarType dtype) { return c10::isReducedFloatingType(dtype) ? c10::kFloat : dtype; }

// The arguments of a call by name, on the stack.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : schema_(op.schema()), first_(stack->end() - static_cast<int64_t>(op.schema().arguments().size())) {}

  // NULL for a name that this operator does not have.
  c10::IValue* find(const char* name) const {
    const std::optional<int> index = schema_.argumentIndexWithName(name);
    return index ? &first_[*index] : nullptr;
  }
  at::Tensor tensor(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && value->isTensor() ? value->toTensor() : at::Tensor();
  }

 private:
  const c10::FunctionSchema& schema_;
  torch::jit::Stack::iterator first_;
};

// Results: output, mean, 1 / standard deviation, and for _batch_norm_with_update also the reserve.
void widen(c10::IValue* results, c10::ScalarType dtype) {
  for (int i : {1, 2}) results[i] = results[i].toTensor().to(dtype);
}

void batch_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments arguments(op, stack);
  const c10::ScalarType dtype = compute_dtype(arguments.tensor("input").scalar_type());
  const at::Tensor mean = arguments.tensor("running_mean"), variance = arguments.tensor("running_var");
  const c10::IValue* training = arguments.find("training");
  const bool evaluates = training != nullptr && !training->toBool() && mean.defined() && variance.defined();
  const double eps = arguments.find("eps")->toDouble();
  fallback::run(op, stack);
  c10::IValue* const results = &*(stack->end() - static_cast<int64_t>(op.schema().returns().size()));
  if (evaluates) {
    results[1] = mean.to(dtype, /*non_blocking=*/false, /*copy=*/true);
    results[2] = variance.to(dtype).add(eps).rsqrt_();
  } else {
    widen(results, dtype);
  }
}

void layer_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::ScalarType dtype = compute_dtype(Arguments(op, stack).tensor("input").scalar_type());
  fallback::run(op, stack);
  widen(&*(stack->end() - 3), dtype);
}

// The CPU requires one dtype for all parameters and statistics: those that were in a half type are converted back, without loss.
void backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Arguments arguments(op, stack);
  at::Tensor like = arguments.tensor("weight");
  if (!like.defined()) like = arguments.tensor(arguments.find("normalized_shape") != nullptr ? "input" : "running_mean");
  for (const char* name : {"save_mean", "save_invstd", "save_var", "mean", "rstd"}) {
    const at::Tensor saved = arguments.tensor(name);
    if (like.defined() && saved.defined()) *arguments.find(name) = saved.to(like.scalar_type());
  }
  fallback::run(op, stack);
}

const Defaults defaults([](DefaultKernels& m) {
  if (!fallback::is_wanted()) return;
  for (const char* name : {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}) m.impl_boxed<&batch_norm>(name);
  m.impl_boxed<&layer_norm>("native_layer_norm");
  for (const char* name : {"native_batch_norm_backward", "batch_norm_backward", "native_layer_norm_backward"})
    m.impl_boxed<&backward>(name);
});

}  // namespace
}  // namespace backplane::normalization_impl
