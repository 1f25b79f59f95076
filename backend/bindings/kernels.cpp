// bindings/kernels.cpp: counters of kernels, which tests use to distinguish a kernel from the fallback, and errors of their registration.
#include <backplane/kernel.h>

#include "bindings/module.h"
#include "dispatch/defaults.h"
#include "dispatch/registration.h"
#include "modules/launch.h"

namespace backplane::bindings {
namespace {

// The package's own kernels, before Python's registrations: registration_errors() is called again after those, and after another library.
void check_registration() {
  const std::vector<std::string> errors = registration_errors(/*before_python=*/true);
  if (errors.empty()) return;
  std::string text = "kernels of " BACKPLANE_DEVICE_NAME " could not be registered:";
  for (const std::string& error : errors) text += "\n  " + error;
  throw py::import_error(text);
}

}  // namespace

void bind_kernels(py::module_& module) {
  check_registration();
  def_quick(module, "registration_errors", [] { return registration_errors(/*before_python=*/false); });
  def_quick(module, "python_modules", [] {
    std::vector<std::pair<std::string, std::string>> modules;
    for (PythonModule& found : python_modules()) modules.emplace_back(std::move(found.name), std::move(found.site));
    return modules;
  });
  def_quick(module, "calls", [](const std::string& name) { return kernel_calls(name); });
  def_quick(module, "declared_dtypes", [](const std::string& op) { return declared_dtypes(op); });
  def_blocking(module, "unmet_needs", [](const std::string& op) { return unmet_needs(op); });
  def_quick(module, "portable_calls", [] { return portable_calls(); });
  def_quick(module, "has_portable", [](const std::string& op) { return has_portable(op); });
  def_quick(module, "has_default", [](const std::string& op) { return has_default(op); });
}

}  // namespace backplane::bindings
