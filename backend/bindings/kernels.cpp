// bindings/kernels.cpp: the counters that tell a kernel from the fallback.
#include <backplane/kernel.h>

#include "bindings/module.h"

namespace backplane::bindings {

void bind_kernels(py::module_& module) {
  def_quick(module, "kernel_calls", [](const std::string& name) { return kernel_calls(name); });
  def_blocking(module, "can_launch", [] { return can_launch(); });
}

}  // namespace backplane::bindings
