// aten/defaults.h: kernels of the core that give way to a vendor's own for the same operator.
//
// torch warns when a kernel replaces another one. So these are registered after everything else in lib<device>.so (defaults_last.cpp is
// linked last), and only where the vendor has registered none. A kernel that is registered later still, by another library or from Python,
// replaces them with torch's usual warning. What a vendor's kernel does not take comes back to them: leave().
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <utility>
#include <vector>

namespace backplane {

class DefaultLibrary {
 public:
  explicit DefaultLibrary(torch::Library& library) : library_(library) {}

  // `name` without namespace, "convolution_overrideable" or "add.Tensor"; `function`: TORCH_FN(...). Where the operator has a kernel of the
  // device already, this one is kept for leave().
  template <typename Function>
  void impl(const char* name, Function function) {
    if (is_taken(name)) {
      keep(name, c10::KernelFunction::makeFromUnboxedFunction(function));
    } else {
      library_.impl(name, function);
    }
  }
  template <c10::BoxedKernel::BoxedKernelFunction* function>
  void impl_boxed(const char* name) {
    if (is_taken(name)) {
      keep(name, c10::KernelFunction::makeFromBoxedFunction<function>());
    } else {
      library_.impl(name, torch::CppFunction::makeFromBoxedFunction<function>());
    }
  }

 private:
  static bool is_taken(const char* name);
  static void keep(const char* name, c10::KernelFunction kernel);
  torch::Library& library_;
};

// One static object a file: registers its kernels of the aten namespace, at the time said above.
class Defaults {
 public:
  using Function = void (*)(DefaultLibrary& m);
  explicit Defaults(Function function) { list().push_back(function); }

  static std::vector<Function>& list() {
    static std::vector<Function> functions;
    return functions;
  }
};

void register_defaults();

// Computes a call that a vendor's kernel does not take: by the core's own kernel if it has one, else by the fallback.
void leave(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace backplane
