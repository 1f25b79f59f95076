// autocast/autocast.cpp: torch.autocast for the device: torch's own lists of operators, under the device's key.
//
// The fallthrough comes first: without it every operator that is not in a list fails inside an autocast region. A vendor adds rules for its
// own operators with Operator::autocast (backplane/library.h). Higher-order operators and their rules are in Python.
//
// The rules are boxed kernels, one per policy: torch's templates for them (ATen/autocast_mode.h) include all of ATen and are instantiated
// for each operator, half a minute of compile time on a small machine. CMake extracts the lists from that header (BackplaneTorch.cmake).
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <backplane/library.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

#include "torch/compat.h"
#include "torch_autocast_lists.h"

// Exported by torch; declared in ATen/autocast_mode.h.
namespace at::autocast {
TORCH_API ScalarType get_autocast_dtype(DeviceType device_type);
TORCH_API Tensor cached_cast(ScalarType to_type, const Tensor& arg, DeviceType device_type);
}  // namespace at::autocast

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace backplane::autocast_impl {
namespace {

using torch::jit::Stack;

c10::ArrayRef<c10::IValue> arguments(const c10::OperatorHandle& op, const Stack& stack) {
  return torch::jit::last(stack, op.schema().arguments().size());
}

// Double is never cast, nor are tensors of other devices.
bool is_eligible(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_privateuseone() && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
}

// Casts leaves once per region and caches them (torch's cache of weights).
at::Tensor cast(const at::Tensor& tensor, at::ScalarType dtype) { return at::autocast::cached_cast(dtype, tensor, at::kPrivateUse1); }

void cast_arguments(const c10::OperatorHandle& op, Stack* stack, at::ScalarType dtype) {
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) value = cast(value.toTensor(), dtype);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(cast(tensor, dtype));
      value = std::move(list);
    }
  }
}

void lower_precision(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  cast_arguments(op, stack, at::autocast::get_autocast_dtype(at::kPrivateUse1));
  op.callBoxed(stack);
}

void float32(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  cast_arguments(op, stack, at::kFloat);
  op.callBoxed(stack);
}

// Reductions that can accumulate in a dtype other than their input's: in float32, unless the caller passes one.
void float32_result(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const auto& schema = op.schema().arguments();
  const size_t begin = stack->size() - schema.size();
  if (is_eligible((*stack)[begin].toTensor())) {
    for (size_t i = 0; i < schema.size(); ++i) {
      if (schema[i].name() == "dtype" && (*stack)[begin + i].isNone()) (*stack)[begin + i] = at::kFloat;
    }
  }
  op.callBoxed(stack);
}

// norm: uses the overload with a dtype.
void float32_overload(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const at::Tensor& self = arguments(op, *stack)[0].toTensor();
  stack->emplace_back(is_eligible(self) ? at::kFloat : self.scalar_type());
  const std::string& overload = op.schema().overload_name();
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(op.schema().name().c_str(), overload == "Scalar" ? "ScalarOpt_dtype" : (overload + "_dtype").c_str())
      .callBoxed(stack);
}

// Several inputs: the widest dtype among them.
void promote(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const at::ScalarType lower = at::autocast::get_autocast_dtype(at::kPrivateUse1);
  at::ScalarType widest = lower;
  const auto consider = [&](const at::Tensor& tensor) {
    if (!is_eligible(tensor)) return;
    const at::ScalarType dtype = tensor.scalar_type();
    TORCH_CHECK(dtype == lower || dtype == at::kFloat, op.schema().name(), " under autocast to ", lower, " got a tensor of ", dtype,
                ": its floating-point inputs must be ", lower, " or Float (or Double, which is left alone). Cast it with .to() first.");
    if (dtype == at::kFloat) widest = at::kFloat;
  };
  for (const c10::IValue& value : arguments(op, *stack)) {
    if (value.isTensor()) {
      consider(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) consider(tensor);
    }
  }
  cast_arguments(op, stack, widest);
  op.callBoxed(stack);
}

// Its log of a low-precision probability overflows; torch refuses it under autocast on every device.
void refuse_binary_cross_entropy(const c10::OperatorHandle& /*op*/, Stack* /*stack*/) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
              "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which take the values before the "
              "sigmoid, or leave the autocast region and pass float32 values.");
}

// "pow, Tensor_Scalar" in torch's lists is "aten::pow.Tensor_Scalar".
std::string qualified(std::string name) {
  const size_t comma = name.find(',');
  if (comma != std::string::npos) name.replace(comma, name.find_first_not_of(", ", comma) - comma, ".");
  return "aten::" + name;
}

template <c10::BoxedKernel::BoxedKernelFunction* Rule>
void register_rule(torch::Library& library, std::initializer_list<const char*> names) {
  for (const char* name : names) library.impl(qualified(name).c_str(), torch::CppFunction::makeFromBoxedFunction<Rule>());
}

}  // namespace
}  // namespace backplane::autocast_impl

// Each list calls its argument with (op) or (op, overload); the one of other signatures with (function, "op.overload", ...).
#define BACKPLANE_NAME(...) #__VA_ARGS__,
#define BACKPLANE_SECOND(function, name, ...) name,

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using namespace backplane::autocast_impl;
  register_rule<&lower_precision>(m, {AT_FORALL_LOWER_PRECISION_FP(BACKPLANE_NAME)});
  register_rule<&float32>(m, {AT_FORALL_FP32(BACKPLANE_NAME)});
  for (const char* name : backplane::compat::kUnlistedFloat32) {
    if (c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, ""})) register_rule<&float32>(m, {name});
  }
  register_rule<&float32_result>(m, {AT_FORALL_FP32_SET_OPT_DTYPE(BACKPLANE_NAME)});
  register_rule<&float32_overload>(m, {AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(BACKPLANE_SECOND)});
  register_rule<&promote>(m, {AT_FORALL_PROMOTE(BACKPLANE_NAME)});
  register_rule<&refuse_binary_cross_entropy>(m, {"binary_cross_entropy"});
}

namespace backplane {

Operator& Operator::autocast(Cast cast) {
  using namespace autocast_impl;
  Kernels& rules = kernels("AutocastPrivateUse1");
  rules.check(name_.c_str());
  const auto rule = [&]() -> torch::CppFunction {
    switch (cast) {
      case Cast::lower_precision:
        return torch::CppFunction::makeFromBoxedFunction<&lower_precision>();
      case Cast::float32:
        return torch::CppFunction::makeFromBoxedFunction<&float32>();
      case Cast::promote:
        return torch::CppFunction::makeFromBoxedFunction<&promote>();
    }
    TORCH_CHECK_VALUE(false, "autocast of ", name_, ": there is no such backplane::Cast");
  };
  rules.library().impl(name_.c_str(), rule());
  return *this;
}

}  // namespace backplane

#undef BACKPLANE_NAME
#undef BACKPLANE_SECOND
