// backplane/autograd.h: gradients of a vendor's own operators, written in C++.
//
// By another operator, which gets the gradients of the outputs and, by name, inputs and outputs of the first:
//
//   m.def("swiglu(Tensor x) -> Tensor").kernel(&swiglu).backward("swiglu_backward");
//   m.def("swiglu_backward(Tensor grad, Tensor x) -> Tensor").kernel(&swiglu_backward);
//
// Or by a class derived from torch::autograd::Function, whose forward() has the operator's signature and computes below autograd:
//
//   struct Swiglu : torch::autograd::Function<Swiglu> {
//     static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
//       context->save_for_backward({x});
//       const backplane::BelowAutograd guard;
//       return backplane::call<at::Tensor(const at::Tensor&)>("vendor::swiglu", x);  // the device's kernel, or the CPU's
//     }
//     static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads);
//   };
//   m.def("swiglu(Tensor x) -> Tensor").kernel(&swiglu).autograd<Swiglu>();
//
// torch's header is heavy: including this one adds some seconds to the compilation of a file. Include it only in the file with the
// definitions.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <backplane/library.h>
#include <backplane/signature.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace backplane {

// While it lives, the calling thread's operators record no gradient, and call their kernels directly.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// Calls an operator, "vendor::op" or "add.Tensor" of aten, through the dispatcher. Throws if its signature differs.
template <typename Signature, typename... Arguments>
decltype(auto) call(const char* name, Arguments&&... arguments) {
  return detail::find_operator(name).typed<Signature>().call(std::forward<Arguments>(arguments)...);
}

namespace detail {

// The gradient of one operator as another operator, with boxed arguments: nothing here depends on the operators' signatures.
class Backward {
 public:
  Backward(c10::OperatorHandle forward, c10::OperatorHandle backward) : forward_(std::move(forward)), backward_(std::move(backward)) {
    match_parameters();
    match_results();
  }

  // Outputs and gradients are on the stack. Differentiable inputs that are absent (Tensor?) are not in `inputs`.
  struct Function : torch::autograd::Function<Function> {
    using Context = torch::autograd::AutogradContext;
    using Tensors = torch::autograd::variable_list;

    static Tensors forward(Context* context, at::TensorList /*inputs*/, const Backward* self, c10::DispatchKeySet keys,
                           torch::jit::Stack* stack) {
      const size_t begin = stack->size() - self->forward_.schema().arguments().size();
      const std::vector<c10::IValue> arguments(stack->begin() + static_cast<int64_t>(begin), stack->end());
      {
        const BelowAutograd guard;
        self->forward_.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
      }
      Tensors outputs, tensors;
      for (size_t i = begin; i < stack->size(); ++i) outputs.push_back((*stack)[i].toTensor());
      for (const Parameter& parameter : self->parameters_) {
        if (parameter.from == From::gradient) continue;
        const c10::IValue value = parameter.from == From::output ? c10::IValue(outputs[parameter.index]) : arguments[parameter.index];
        if (value.isTensor()) {
          tensors.push_back(value.toTensor());
        } else {
          context->saved_data[std::to_string(parameter.index)] = value;
        }
      }
      context->save_for_backward(std::move(tensors));
      context->saved_data["backward"] = reinterpret_cast<int64_t>(self);
      std::vector<int64_t> results;
      for (size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i].isTensor() && arguments[i].toTensor().defined()) results.push_back(self->results_[i]);
      }
      results.resize(results.size() + 3, -1);  // for the other arguments of this function
      context->saved_data["results"] = std::move(results);
      return outputs;
    }

    static Tensors backward(Context* context, Tensors gradients) {
      const auto* self = reinterpret_cast<const Backward*>(context->saved_data.at("backward").toInt());
      const Tensors tensors = context->get_saved_variables();
      torch::jit::Stack stack;
      size_t next = 0;
      for (const Parameter& parameter : self->parameters_) {
        const auto value = context->saved_data.find(std::to_string(parameter.index));
        if (parameter.from == From::gradient) {
          stack.emplace_back(gradients[parameter.index]);
        } else if (parameter.from == From::input && value != context->saved_data.end()) {
          stack.push_back(value->second);
        } else {
          stack.emplace_back(tensors[next++]);
        }
      }
      self->backward_.callBoxed(&stack);
      Tensors result;
      for (const int64_t i : context->saved_data.at("results").toIntVector()) {
        result.push_back(i < 0 ? at::Tensor() : stack[static_cast<size_t>(i)].toTensor());
      }
      return result;
    }
  };

  void call(c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    const size_t count = forward_.schema().arguments().size();
    std::vector<at::Tensor> inputs;
    for (const c10::IValue& value : torch::jit::last(*stack, count)) {
      if (value.isTensor() && value.toTensor().defined()) inputs.push_back(value.toTensor());
    }
    if (!torch::autograd::any_variable_requires_grad(inputs) || !at::GradMode::is_enabled()) {
      const BelowAutograd guard;
      return forward_.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
    Function::Tensors outputs = Function::apply(at::TensorList(inputs), this, keys, stack);
    stack->resize(stack->size() - outputs.size());
    for (at::Tensor& output : outputs) stack->emplace_back(std::move(output));
  }

 private:
  enum class From : uint8_t { gradient, input, output };
  struct Parameter {
    From from;
    size_t index;
  };

  static bool is_tensor(const c10::Argument& argument) {
    const c10::TypePtr type = argument.type();
    return type->isSubtypeOf(*c10::TensorType::get()) || type->str() == "Tensor?";
  }

  std::string output_name(size_t i) const {
    const std::vector<c10::Argument>& outputs = forward_.schema().returns();
    if (!outputs[i].name().empty()) return outputs[i].name();
    return outputs.size() == 1 ? "result" : "result" + std::to_string(i);
  }

  // Matches every parameter of the backward operator by name.
  void match_parameters() {
    const c10::FunctionSchema& schema = forward_.schema();
    std::vector<std::pair<std::string, Parameter>> known;
    for (size_t i = 0; i < schema.returns().size(); ++i) {
      TORCH_CHECK(schema.returns()[i].type()->isSubtypeOf(*c10::TensorType::get()) && schema.returns()[i].alias_info() == nullptr,
                  "backward() is for operators that return new tensors, and ", schema, " does not: give autograd<Function>() instead");
      if (schema.returns().size() == 1) known.emplace_back("grad", Parameter{From::gradient, i});
      known.emplace_back("grad_" + output_name(i), Parameter{From::gradient, i});
      known.emplace_back(output_name(i), Parameter{From::output, i});
    }
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      TORCH_CHECK(argument.alias_info() == nullptr, "backward() is for operators that write none of their arguments, and ", schema,
                  " does: give autograd<Function>() instead");
      TORCH_CHECK(is_tensor(argument) || argument.type()->str().find("Tensor") == std::string::npos,
                  "backward() is for operators that take no lists of tensors, and ", schema, " does: give autograd<Function>() instead");
      known.emplace_back(argument.name(), Parameter{From::input, i});
    }
    for (const c10::Argument& argument : backward_.schema().arguments()) {
      const auto found = std::find_if(known.begin(), known.end(), [&](const auto& row) { return row.first == argument.name(); });
      if (found == known.end()) {
        std::string names;
        for (const auto& row : known) names += (names.empty() ? "" : ", ") + row.first;
        TORCH_CHECK(false, "the parameter ", argument.name(), " of ", backward_.schema(), " is unknown for the gradient of ", schema,
                    "; it can have ", names);
      }
      parameters_.push_back(found->second);
    }
  }

  // Results by name, grad_<input>, if they are named; else in the order of the forward operator's tensors.
  void match_results() {
    const std::vector<c10::Argument>& results = backward_.schema().returns();
    const bool named = !results.empty() && !results[0].name().empty();
    size_t matched = 0;
    for (const c10::Argument& argument : forward_.schema().arguments()) {
      results_.push_back(-1);
      if (!is_tensor(argument)) continue;
      if (!named) {
        results_.back() = static_cast<int64_t>(matched++);
        continue;
      }
      for (size_t i = 0; i < results.size(); ++i) {
        if (results[i].name() == "grad_" + argument.name()) {
          results_.back() = static_cast<int64_t>(i);
          ++matched;
        }
      }
    }
    TORCH_CHECK(matched == results.size(), backward_.schema(), " returns ", results.size(), " gradients, and ", forward_.schema(),
                named ? " has inputs for " : " has tensors for ", matched,
                ". Return one for each tensor among its inputs, in their order, ", "or name the results: -> (Tensor grad_<input>, ...)");
  }

  c10::OperatorHandle forward_;
  c10::OperatorHandle backward_;
  std::vector<Parameter> parameters_;
  std::vector<int64_t> results_;  // by input of the forward operator: which result is its gradient, or -1
};

struct BackwardKernel final : c10::OperatorKernel {
  explicit BackwardKernel(const Backward* plan) : plan(plan) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet keys, torch::jit::Stack* stack) { plan->call(keys, stack); }
  const Backward* plan;  // never destroyed: graphs may outlive any library
};

// A torch::autograd::Function as a kernel with the signature of its forward().
template <typename Function, typename Forward>
struct Differentiable;
template <typename Function, typename Return, typename... Arguments>
struct Differentiable<Function, Return (*)(torch::autograd::AutogradContext*, Arguments...)> {
  static Return call(Arguments... arguments) { return Function::apply(std::forward<Arguments>(arguments)...); }
};

}  // namespace detail

inline Operator& Operator::backward(const char* operator_name) {
  const auto attach = [](Operator& op, const std::string& backward) {
    Kernels& kernels = op.kernels("Autograd");
    const auto handle = [&](const std::string& name) { return detail::find_operator(kernels.full_name(name.c_str())); };
    const auto* plan = new detail::Backward(handle(op.name()), handle(backward));
    kernels.check(op.name().c_str());
    kernels.library().impl(op.name().c_str(), torch::CppFunction::makeFromBoxedKernel(
                                                  c10::BoxedKernel::makeFromFunctor(std::make_unique<detail::BackwardKernel>(plan))));
  };
  at_end([op = *this, backward = std::string(operator_name), attach]() mutable { attach(op, backward); });
  return *this;
}

template <typename Function>
Operator& Operator::autograd() {
  return impl("Autograd", &detail::Differentiable<Function, decltype(&Function::forward)>::call);
}

}  // namespace backplane
