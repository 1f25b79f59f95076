// kernels/portable/pointwise/pointwise.cpp: registers the operators of the tables as kernels of the dispatcher, in all their forms.
#include "kernels/portable/pointwise/pointwise.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <backplane/signature.h>
#include <c10/core/Scalar.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/defaults.h"
#include "kernels/portable/pointwise/pointwise_form.h"

namespace backplane::portable {
namespace pointwise_impl {
namespace {

// The lines of all tables, independent of the order of their initializers.
std::vector<Pointwise>& lines() {
  static auto& instance = *new std::vector<Pointwise>;
  return instance;
}

std::vector<ComplexPointwise>& complex_lines() {
  static auto& instance = *new std::vector<ComplexPointwise>;
  return instance;
}

std::optional<ComplexPointwise> complex_line(std::string_view name) {
  for (const ComplexPointwise& line : complex_lines()) {
    if (line.name.view() == name) return line;
  }
  return std::nullopt;
}

// A kernel with the arguments of a frequent schema, which saves a small call the stack.
template <typename Return, typename... Arguments>
struct Unboxed final : c10::OperatorKernel {
  Unboxed(std::shared_ptr<const PointwiseForm> form, const c10::OperatorHandle& op, KernelCounter& counter)
      : form(std::move(form)), op(op), counter(counter) {}

  Return operator()(c10::DispatchKeySet keys, Arguments... arguments) {
    at::Tensor result;
    if (can_compile() && kernel_policy() != KernelPolicy::off && compute(result, arguments...)) {
      counter.count();
    } else {
      torch::jit::Stack stack;
      torch::jit::push(stack, arguments...);
      decline_portable(op, keys, &stack);
      result = std::move(stack[0]).toTensor();
    }
    if constexpr (std::is_reference_v<Return>) {
      return std::get<0>(std::tie(arguments...));
    } else {
      return result;
    }
  }

  bool compute(at::Tensor& result, const at::Tensor& x) { return form->compute({&x}, nullptr, result); }
  bool compute(at::Tensor& result, const at::Tensor& x, const at::Tensor& y) { return form->compute({&x, &y}, nullptr, result); }
  bool compute(at::Tensor& result, const at::Tensor& x, const c10::Scalar& s) { return form->compute({&x}, &s, result); }
  bool compute(at::Tensor& result, const at::Tensor& x, const at::Tensor& y, const c10::Scalar& s) {
    return form->compute({&x, &y}, &s, result);
  }

  const std::shared_ptr<const PointwiseForm> form;
  const c10::OperatorHandle op;
  KernelCounter& counter;
};

template <typename Return, typename... Arguments>
detail::TypedKernel unboxed_as(const std::shared_ptr<const PointwiseForm>& form, const c10::OperatorHandle& op, KernelCounter& counter) {
  using Kernel = Unboxed<Return, Arguments...>;
  static constexpr std::array<detail::Type, sizeof...(Arguments)> arguments{detail::type_of<Arguments>()...};
  return {c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::unique_ptr<c10::OperatorKernel>(new Kernel(form, op, counter))),
          c10::impl::CppSignature::make<Return(Arguments...)>(), arguments, detail::Result<Return>::types};
}

// None for other schemas.
std::optional<detail::TypedKernel> unboxed(const std::shared_ptr<const PointwiseForm>& form, const c10::OperatorHandle& op,
                                           Call::Form which, KernelCounter& counter) {
  using at::Tensor;
  using c10::Scalar;
  std::string letters;
  for (const c10::Argument& argument : op.schema().arguments()) {
    const c10::TypeKind type = argument.type()->kind();
    letters += type == c10::TypeKind::TensorType ? 'T' : type == c10::TypeKind::NumberType ? 'S' : '?';
  }
  if (which == Call::Form::functional) {
    if (letters == "T") return unboxed_as<Tensor, const Tensor&>(form, op, counter);
    if (letters == "TT") return unboxed_as<Tensor, const Tensor&, const Tensor&>(form, op, counter);
    if (letters == "TS") return unboxed_as<Tensor, const Tensor&, const Scalar&>(form, op, counter);
    if (letters == "TTS") return unboxed_as<Tensor, const Tensor&, const Tensor&, const Scalar&>(form, op, counter);
  } else if (which == Call::Form::inplace) {
    if (letters == "T") return unboxed_as<Tensor&, Tensor&>(form, op, counter);
    if (letters == "TT") return unboxed_as<Tensor&, Tensor&, const Tensor&>(form, op, counter);
    if (letters == "TS") return unboxed_as<Tensor&, Tensor&, const Scalar&>(form, op, counter);
    if (letters == "TTS") return unboxed_as<Tensor&, Tensor&, const Tensor&, const Scalar&>(form, op, counter);
  }
  return std::nullopt;
}

bool has_same_inputs(const c10::FunctionSchema& form, const c10::FunctionSchema& functional) {
  std::vector<std::string> inputs[2];
  for (const c10::Argument& argument : form.arguments()) {
    if (!argument.is_out()) inputs[0].push_back(argument.name() + argument.type()->str());
  }
  for (const c10::Argument& argument : functional.arguments()) inputs[1].push_back(argument.name() + argument.type()->str());
  return inputs[0] == inputs[1];
}

// The first of these overloads that has the functional form's arguments.
std::optional<c10::OperatorHandle> find_form(const std::string& base, std::initializer_list<std::string> overloads, bool has_out,
                                             const c10::FunctionSchema& functional) {
  for (const std::string& overload : overloads) {
    const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + base, overload});
    if (found && found->schema().arguments().back().is_out() == has_out && has_same_inputs(found->schema(), functional)) return found;
  }
  return std::nullopt;
}

std::string local_name(const c10::OperatorName& full) {
  return full.name.substr(full.name.find("::") + 2) + (full.overload_name.empty() ? "" : "." + full.overload_name);
}

void add_form(DefaultKernels& kernels, const std::shared_ptr<PointwiseOperator>& shared, const c10::OperatorHandle& op, Call::Form which) {
  const c10::OperatorName& full = op.operator_name();
  TORCH_CHECK(op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd),
              full, " is composed of others: a kernel of the device would take its gradient away");
  const auto form = std::make_shared<const PointwiseForm>(shared, which, op.schema());
  const auto compute = [form](Call& call) {
    at::Tensor result;
    if (!form->compute(&call[0], result)) return false;
    call.give(c10::IValue(std::move(result)));
    return true;
  };
  add_operator(kernels, local_name(full).c_str(), compute, shared->counter, unboxed(form, op, which, shared->counter));
}

// All forms of a line: for "pow.Tensor_Scalar" also pow.Tensor_Scalar_out and pow_.Scalar.
void add_forms(DefaultKernels& kernels, const Pointwise& line) {
  const std::string name(line.name);
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const std::string last = overload.substr(overload.rfind('_') + 1);
  const c10::OperatorHandle given = detail::find_operator(line.name);
  const auto shared = std::make_shared<PointwiseOperator>(line, complex_line(line.name.view()));
  if (given.schema().is_mutable()) return add_form(kernels, shared, given, Call::Form::inplace);
  const auto out = find_form(base, {"out", overload + "_out", "out_" + last}, true, given.schema());
  add_form(kernels, shared, given, Call::Form::functional);
  if (out) add_form(kernels, shared, *out, Call::Form::out);
  if (const auto inplace = find_form(base + "_", {overload, last}, false, given.schema())) {
    add_form(kernels, shared, *inplace, Call::Form::inplace);
  }
}

}  // namespace
}  // namespace pointwise_impl

PointwiseTable::PointwiseTable(std::initializer_list<Pointwise> operators) {
  pointwise_impl::lines().insert(pointwise_impl::lines().end(), operators.begin(), operators.end());
}

ComplexTable::ComplexTable(std::initializer_list<ComplexPointwise> operators) {
  pointwise_impl::complex_lines().insert(pointwise_impl::complex_lines().end(), operators.begin(), operators.end());
}

PointwiseTable PointwiseTable::special(std::initializer_list<Pointwise> operators) {
  for (Pointwise line : operators) {
    line.is_special = true;
    pointwise_impl::lines().push_back(line);
  }
  return {};
}

static const Defaults pointwise_tables([](DefaultKernels& kernels) {
  for (const Pointwise& line : pointwise_impl::lines()) pointwise_impl::add_forms(kernels, line);
});

}  // namespace backplane::portable
