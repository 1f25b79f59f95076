// dispatch/defaults.h: kernels of the core that give way to a vendor's own for the same operator.
//
// torch warns when a kernel replaces another one. So these are registered after everything else in lib<device>.so (registered_last.cpp is
// linked last), and only where the vendor has registered none. A kernel that is registered later still, by another library or from Python,
// replaces them with torch's usual warning. What a vendor's kernel does not take comes back to them: decline().
#pragma once

#include <backplane/signature.h>

#include <string>
#include <utility>
#include <vector>

namespace backplane {

class DefaultKernels {
 public:
  // `name` without namespace, "convolution_overrideable" or "add.Tensor". Where the operator has a kernel of the device already, this one
  // is kept for decline().
  template <typename Return, typename... Arguments>
  void impl(const char* name, Return (*function)(Arguments...)) {
    add(name, detail::typed_kernel(function));
  }
  template <c10::BoxedKernel::BoxedKernelFunction* function>
  void impl_boxed(const char* name) {
    add_boxed(name, c10::BoxedKernel::makeFromFunction<function>());
  }

 private:
  void add(const char* name, detail::TypedKernel kernel);
  void add_boxed(const char* name, c10::BoxedKernel kernel);
};

// One static object a file: registers its kernels of the aten namespace, at the time said above.
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

// Whether the core keeps a kernel of its own for what a vendor's kernel of "aten::fill_.Scalar" does not take.
bool has_default(const std::string& op);

// Computes a call that a vendor's kernel does not take: by the core's own kernel if it has one, else by the fallback.
void decline(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace backplane
