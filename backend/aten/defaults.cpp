// aten/defaults.cpp: registers the kernels of the core that give way to a vendor's own.
#include "aten/defaults.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <backplane/signature.h>

#include <unordered_map>

#include "aten/fallback.h"

namespace backplane {
namespace defaults_impl {
namespace {

// Filled while the library is loaded, only read from then on.
std::unordered_map<c10::OperatorName, c10::KernelFunction>& kept() {
  static auto* const instance = new std::unordered_map<c10::OperatorName, c10::KernelFunction>;
  return *instance;
}

}  // namespace
}  // namespace defaults_impl

bool DefaultLibrary::is_taken(const char* name) {
  return detail::find_operator(name).hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1);
}

void DefaultLibrary::keep(const char* name, c10::KernelFunction kernel) {
  defaults_impl::kept().emplace(detail::find_operator(name).operator_name(), std::move(kernel));
}

void leave(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& kept = defaults_impl::kept();
  const auto found = kept.find(op.operator_name());
  if (found == kept.end()) return fallback::run(op, keys, stack);
  found->second.callBoxed(op, keys, stack);
}

void register_defaults() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  DefaultLibrary defaults(library);
  for (const Defaults::Function function : Defaults::list()) function(defaults);
}

}  // namespace backplane
