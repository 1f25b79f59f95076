// bindings/kernels.cpp: the counters that tell a kernel from the fallback, and what went wrong at their registration.
#include <backplane/kernel.h>

#include "aten/registration.h"
#include "bindings/module.h"

namespace backplane::bindings {
namespace {

void check_registration() {
  const std::vector<std::string> errors = registration_errors();
  if (errors.empty()) return;
  std::string text = "kernels of " BACKPLANE_DEVICE_NAME " could not be registered:";
  for (const std::string& error : errors) text += "\n  " + error;
  throw py::import_error(text);
}

}  // namespace

void bind_kernels(py::module_& module) {
  check_registration();  // the package's own, by now; a further library's after it was loaded:
  def_quick(module, "check_registration", &check_registration);
  def_quick(module, "kernel_calls", [](const std::string& name) { return kernel_calls(name); });
  def_blocking(module, "can_launch", [] { return can_launch(); });
}

}  // namespace backplane::bindings
