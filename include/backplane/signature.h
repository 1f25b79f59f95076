// backplane/signature.h: registers a kernel of any C++ signature with the dispatcher (backplane/registration.h). The core compiles common
// signatures; a kernel file with another one includes this.
//
// It does what torch::Library::impl does, with little code per signature: torch's own templates take twice the time to compile.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/infer_schema.h>
#include <backplane/registration.h>

#include <array>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace backplane::detail {

using Type = c10::detail::infer_schema::ArgumentDef;  // of an argument or a result, in a schema
using Stack = torch::jit::Stack;

// A C++ function for the dispatcher. The types live as long as the process.
struct TypedKernel {
  c10::KernelFunction function;
  c10::impl::CppSignature signature;
  c10::ArrayRef<Type> arguments;
  c10::ArrayRef<Type> returns;
};

// Lives as long as the process. The types are compared with the operator's schema, now or when it is defined.
void register_kernel(const Kernels& kernels, const char* name, TypedKernel kernel);
c10::OperatorHandle find_operator(const char* name);  // "add.Tensor" of aten, "vendor::op"; throws if there is none

// Pushes an argument onto a stack, as an IValue.
using Push = void (*)(Stack& stack, const void* argument);
template <typename T>
void push(Stack& stack, const void* argument) {
  stack.emplace_back(*static_cast<const T*>(argument));
}
// The result of the fallback for these arguments, each with its Push.
Stack run_fallback(const char* name, c10::ArrayRef<Push> pushes, const void* const* arguments);
at::Tensor run_fallback_for_tensor(const char* name, c10::ArrayRef<Push> pushes, const void* const* arguments);
void run_fallback_in_place(const char* name, c10::ArrayRef<Push> pushes, const void* const* arguments);

template <typename T>
constexpr Type type_of() {
  return Type(&c10::getTypePtrCopy<std::decay_t<T>>, &c10::getFakeTypePtrCopy<std::decay_t<T>>);
}

// The result of a kernel.
template <typename T>
struct Result {
  static constexpr std::array<Type, 1> types{type_of<T>()};
  static constexpr size_t references = std::is_reference_v<T>;
  static T pop(Stack& stack) { return std::move(stack[0]).to<T>(); }
};
template <>
struct Result<void> {
  static constexpr std::array<Type, 0> types{};
  static constexpr size_t references = 0;
  static void pop(Stack& /*stack*/) {}
};
template <typename... T>
struct Result<std::tuple<T...>> {
  static constexpr std::array<Type, sizeof...(T)> types{type_of<T>()...};
  static constexpr size_t references = (0 + ... + std::is_reference_v<T>);
  static std::tuple<T...> pop(Stack& stack) {
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return std::tuple<T...>{std::move(stack[i]).template to<T>()...};
    }(std::make_index_sequence<sizeof...(T)>());
  }
};

// References refer to the tensors of the call: to the first for an in-place operator, to the last ones for an out= operator.
template <typename Return, typename First, typename... Rest>
Return results_among(First& first, Rest&... rest) {
  if constexpr (std::is_same_v<Return, at::Tensor&> && std::is_same_v<First, at::Tensor>) {
    return first;
  } else {
    return [&]<size_t... i>(std::index_sequence<i...>) -> Return {
      return Return(std::get<1 + sizeof...(Rest) - sizeof...(i) + i>(std::tie(first, rest...))...);
    }(std::make_index_sequence<Result<Return>::references>());
  }
}

template <typename Return, typename... Arguments>
TypedKernel typed_kernel(Return (*function)(Arguments...)) {
  using Functor = c10::impl::WrapFunctionIntoRuntimeFunctor<Return (*)(Arguments...)>;
  static constexpr std::array<Type, sizeof...(Arguments)> arguments{type_of<Arguments>()...};
  // Not make_unique: a unique_ptr of each Functor takes longer to compile than the rest of this.
  return {c10::KernelFunction::makeFromUnboxedFunctor<false, Functor>(std::unique_ptr<c10::OperatorKernel>(new Functor(function))),
          c10::impl::CppSignature::make<Return(Arguments...)>(), arguments, Result<Return>::types};
}

template <typename Return, typename... Arguments>
void Signature<Return(Arguments...)>::impl(const Kernels& kernels, const char* name, Return (*function)(Arguments...)) {
  register_kernel(kernels, name, typed_kernel(function));
}

template <typename Return, typename... Arguments>
Return Signature<Return(Arguments...)>::call_fallback(const char* name, Arguments... arguments) {
  static constexpr std::array<Push, sizeof...(Arguments)> pushes{&push<std::decay_t<Arguments>>...};
  const std::array<const void*, sizeof...(Arguments)> values{&arguments...};
  if constexpr (Result<Return>::references != 0) {
    run_fallback_in_place(name, pushes, values.data());
    return results_among<Return>(arguments...);
  } else if constexpr (std::is_same_v<Return, at::Tensor>) {
    return run_fallback_for_tensor(name, pushes, values.data());
  } else {
    Stack results = run_fallback(name, pushes, values.data());
    return Result<Return>::pop(results);
  }
}

}  // namespace backplane::detail
