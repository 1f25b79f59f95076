// backplane/signature.h: makes a kernel of any C++ signature known to the dispatcher (backplane/registration.h). Common signatures are
// compiled in the core; a kernel file whose signature is not among them includes this.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/BoxedKernel.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <backplane/registration.h>
#include <torch/library.h>

namespace backplane::detail {

c10::OperatorHandle find_operator(const char* name);  // "add.Tensor" of aten, "vendor::op"; throws if there is none
void run_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

template <typename Return, typename... Arguments>
void Signature<Return(Arguments...)>::impl(torch::Library& library, const char* name, Return (*function)(Arguments...)) {
  library.impl(name, torch::CppFunction(function));
}

template <typename Return, typename... Arguments>
Return Signature<Return(Arguments...)>::call_fallback(const char* name, Arguments... arguments) {
  return c10::impl::BoxedKernelWrapper<Return(Arguments...)>::call(c10::BoxedKernel::makeFromFunction<&run_fallback>(), find_operator(name),
                                                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), arguments...);
}

}  // namespace backplane::detail
