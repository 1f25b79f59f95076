// dispatch/defaults.cpp: registers the kernels of the core that give way to a vendor's own.
#include "dispatch/defaults.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>

#include "dispatch/core_kernels.h"
#include "fallback/fallback.h"

namespace backplane {
namespace defaults_impl {
namespace {

// Filled while the library is loaded, only read from then on.
std::unordered_map<c10::OperatorName, c10::KernelFunction>& kept() {
  static auto* const instance = new std::unordered_map<c10::OperatorName, c10::KernelFunction>;
  return *instance;
}

CoreKernels& kernels() {
  static auto* const instance = new CoreKernels(detail::Site{"aten", __FILE__, __LINE__}, "PrivateUse1");
  return *instance;
}

bool is_taken(const char* name) { return detail::find_operator(name).hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1); }

void keep(const char* name, c10::KernelFunction kernel) { kept().emplace(detail::find_operator(name).operator_name(), std::move(kernel)); }

}  // namespace
}  // namespace defaults_impl

void DefaultKernels::add(const char* name, detail::TypedKernel kernel) {
  if (defaults_impl::is_taken(name)) {
    defaults_impl::keep(name, std::move(kernel.function));
  } else {
    detail::register_kernel(defaults_impl::kernels(), name, std::move(kernel));
  }
}

void DefaultKernels::add_boxed(const char* name, c10::BoxedKernel kernel) {
  if (defaults_impl::is_taken(name)) {
    defaults_impl::keep(name, c10::KernelFunction::makeFromBoxedKernel(std::move(kernel)));
  } else {
    defaults_impl::kernels().add_boxed(name, std::move(kernel));
  }
}

void decline(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& kept = defaults_impl::kept();
  const auto found = kept.find(op.operator_name());
  if (found == kept.end()) return fallback::run(op, keys, stack);
  found->second.callBoxed(op, keys, stack);
}

bool has_default(const std::string& op) {
  const auto& kept = defaults_impl::kept();
  return kept.find(detail::find_operator(op.c_str()).operator_name()) != kept.end();
}

void register_defaults() {
  DefaultKernels defaults;
  for (const Defaults::Function function : Defaults::list()) function(defaults);
}

}  // namespace backplane
