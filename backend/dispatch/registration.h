// dispatch/registration.h: errors of the registration of operators and kernels, the Python modules that belong to them, and what kernels
// declare.
#pragma once

#include <backplane/registration.h>
#include <c10/core/ScalarType.h>

#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace backplane {

// "file:line: reason", one per block that failed and per kernel whose operator is not defined. Empty: every kernel was registered.
// `before_python`: operators that a Python module defines may be missing yet. Static initializers have run before it can be called; later
// errors, of another library, are also warnings.
std::vector<std::string> registration_errors(bool before_python);

struct PythonModule {
  std::string name;
  std::string site;  // "file:line"
};
std::vector<PythonModule> python_modules();  // in the order of their blocks; without duplicates

namespace detail {
void add_python_module(const Site& site, const char* name);
void add_registration_error(const Site& site, const std::exception& error);
}  // namespace detail

// The dtypes that the kernel of "aten::add.Tensor" declares to support; nothing if it declares none.
std::optional<std::vector<c10::ScalarType>> declared_dtypes(const std::string& op);

// What the kernel of an operator requires and the driver does not support, so that it never runs: "host functions (bp.host_exec)". Nothing
// if it can run. Opens the driver.
std::optional<std::string> unmet_needs(const std::string& op);

}  // namespace backplane
