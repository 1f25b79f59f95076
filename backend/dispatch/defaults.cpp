// dispatch/defaults.cpp: keeps the default kernels, and registers the first one of each operator.
#include "dispatch/defaults.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>

#include "dispatch/core_kernels.h"
#include "dispatch/registration.h"
#include "fallback/fallback.h"
#include "runtime/options.h"

namespace backplane {
namespace defaults_impl {
namespace {

// The default kernels of an operator, in order of precedence.
struct Line {
  c10::OperatorHandle op;
  std::string name;  // without namespace
  std::optional<c10::BoxedKernel> portable;
  bool is_free = false;  // no kernel of the vendor
  std::optional<detail::TypedKernel> portable_unboxed;
  std::optional<c10::BoxedKernel> core_boxed;
  std::optional<detail::TypedKernel> core;
};

// Filled while the library is loaded, afterwards read-only.
std::unordered_map<c10::OperatorName, Line>& lines() {
  static auto* const instance = new std::unordered_map<c10::OperatorName, Line>;
  return *instance;
}

// Whether torch composes the operator of others, for every device.
bool is_derived(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

Line& line_of(const char* name) {
  const c10::OperatorHandle op = detail::find_operator(name);
  return lines().try_emplace(op.operator_name(), Line{op, name}).first->second;
}

const Line* find_line(const c10::OperatorName& name) {
  const auto found = lines().find(name);
  return found == lines().end() ? nullptr : &found->second;
}

bool has_kernel(const c10::OperatorHandle& op) { return op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1); }

// Whether the vendor has a kernel of the operator, or of the out= form from which torch generates it. Queried before anything is
// registered.
bool is_vendors(const Line& line) {
  const c10::OperatorHandle& op = line.op;
  if (has_kernel(op) || !is_derived(op)) return has_kernel(op);
  const c10::OperatorName& name = op.operator_name();
  const std::string base = name.name.back() == '_' ? name.name.substr(0, name.name.size() - 1) : name.name;
  const std::string last = name.overload_name.substr(name.overload_name.rfind('_') + 1);
  for (const std::string& overload : {std::string("out"), name.overload_name + "_out", "out_" + last}) {
    const auto out = c10::Dispatcher::singleton().findSchema({base, overload});
    // The same arguments, followed by out=: one form has one more argument than the other for each result.
    if (out && has_kernel(*out) && out->schema().arguments().size() == op.schema().arguments().size() + out->schema().returns().size()) {
      return true;
    }
  }
  return false;
}

void register_first(CoreKernels& kernels, const Line& line) {
  if (line.portable_unboxed) {
    detail::register_kernel(kernels, line.name.c_str(), *line.portable_unboxed);
  } else if (line.portable) {
    kernels.add_boxed(line.name.c_str(), *line.portable);
  } else if (line.core_boxed) {
    kernels.add_boxed(line.name.c_str(), *line.core_boxed);
  } else {
    detail::register_kernel(kernels, line.name.c_str(), *line.core);
  }
}

// The last default: torch's composition, if the operator is composed of others, else the CPU.
void compose_or_fall_back(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!is_derived(op)) return fallback::run(op, keys, stack);
  // The key of a device that does not exist: its kernel is the one that torch has for every device.
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse3), stack);
}

}  // namespace
}  // namespace defaults_impl

void DefaultKernels::add(const char* name, detail::TypedKernel kernel) { defaults_impl::line_of(name).core = std::move(kernel); }

void DefaultKernels::add_boxed(const char* name, c10::BoxedKernel kernel) { defaults_impl::line_of(name).core_boxed = std::move(kernel); }

bool portable_is_left_out() {
  static const bool left_out = env("KERNELS") == "off";
  return left_out;
}

void DefaultKernels::impl_portable(const char* name, c10::BoxedKernel kernel, std::optional<detail::TypedKernel> unboxed) {
  if (portable_is_left_out()) return;
  defaults_impl::Line& line = defaults_impl::line_of(name);
  TORCH_CHECK(!line.portable, "aten::", name, " has a portable kernel already. Keep one of the two");
  line.portable = std::move(kernel);
  line.portable_unboxed = std::move(unboxed);
}

void decline(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const defaults_impl::Line* line = defaults_impl::find_line(op.operator_name());
  if (line == nullptr || !line->portable) return decline_portable(op, keys, stack);
  line->portable->callBoxed(op, keys, stack);
}

void decline_portable(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const defaults_impl::Line* line = defaults_impl::find_line(op.operator_name());
  if (line != nullptr && line->core_boxed) return line->core_boxed->callBoxed(op, keys, stack);
  if (line != nullptr && line->core) return line->core->function.callBoxed(op, keys, stack);
  defaults_impl::compose_or_fall_back(op, keys, stack);
}

bool has_default(const std::string& op) {
  const defaults_impl::Line* line = defaults_impl::find_line(detail::find_operator(op.c_str()).operator_name());
  return line != nullptr && (line->core || line->core_boxed);
}

bool has_portable(const std::string& op) {
  const defaults_impl::Line* line = defaults_impl::find_line(detail::find_operator(op.c_str()).operator_name());
  return line != nullptr && line->portable;
}

bool is_portable(const std::string& op) {
  const defaults_impl::Line* line = defaults_impl::find_line(detail::find_operator(op.c_str()).operator_name());
  return line != nullptr && line->portable && line->is_free;
}

void register_defaults() {
  // Lives as long as the process: destroying a library removes its kernels.
  const detail::Site site{"aten", __FILE__, __LINE__};
  static auto* const kernels = new CoreKernels(site, "PrivateUse1");
  DefaultKernels defaults;
  try {
    for (const Defaults::Function function : Defaults::list()) function(defaults);
    for (auto& [name, line] : defaults_impl::lines()) line.is_free = !defaults_impl::is_vendors(line);
    for (const auto& [name, line] : defaults_impl::lines()) {
      if (line.is_free) defaults_impl::register_first(*kernels, line);
    }
  } catch (const std::exception& error) {
    detail::add_registration_error(site, error);
  }
}

}  // namespace backplane
