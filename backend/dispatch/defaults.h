// dispatch/defaults.h: default kernels: the first of these that supports the call computes an operator.
//
//   a vendor's kernel, a portable one (kernels/portable), the core's own, torch's composition of other operators, the CPU fallback
//
// torch warns when a kernel replaces another one. So default kernels are registered after everything else in lib<device>.so
// (registered_last.cpp is linked last), and only where the vendor has registered none. A kernel that is registered later, by another
// library or from Python, replaces them with torch's usual warning. Calls that a vendor's kernel does not support are passed on to them:
// decline().
#pragma once

#include <backplane/signature.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace backplane {

class DefaultKernels {
 public:
  // `name` without namespace, "convolution_overrideable" or "add.Tensor". If the operator has a kernel of the device already, this one is
  // kept for decline().
  template <typename Return, typename... Arguments>
  void impl(const char* name, Return (*function)(Arguments...)) {
    add(name, detail::typed_kernel(function));
  }
  template <c10::BoxedKernel::BoxedKernelFunction* function>
  void impl_boxed(const char* name) {
    add_boxed(name, c10::BoxedKernel::makeFromFunction<function>());
  }
  // A kernel of the library, which takes precedence over the core's. `unboxed`: the same kernel for callers without a stack, which is
  // faster. If the vendor has a kernel only of the out= form, from which torch generates the others, this one is not registered.
  void impl_portable(const char* name, c10::BoxedKernel kernel, std::optional<detail::TypedKernel> unboxed = std::nullopt);

 private:
  void add(const char* name, detail::TypedKernel kernel);
  void add_boxed(const char* name, c10::BoxedKernel kernel);
};

// One static object per file: registers its kernels of the aten namespace, at the time described above.
class Defaults {
 public:
  using Function = void (*)(DefaultKernels& m);
  explicit Defaults(Function function) { list().push_back(function); }

  static std::vector<Function>& list() {
    static std::vector<Function> functions;
    return functions;
  }
};

void register_defaults();

// Whether "aten::fill_.Scalar" has a kernel of the core, or a portable one; registered, or behind a vendor's.
bool has_default(const std::string& op);
bool has_portable(const std::string& op);

// <PREFIX>_KERNELS=off while the library was loaded: no portable kernel was registered, and no policy can enable one.
bool portable_is_left_out();
// Whether the portable kernel has precedence: the vendor has no kernel.
bool is_portable(const std::string& op);

// Computes a call that a vendor's kernel does not support, with the next default kernel.
void decline(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
// As above, for a call that a portable kernel does not support.
void decline_portable(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace backplane
