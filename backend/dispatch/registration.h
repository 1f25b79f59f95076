// dispatch/registration.h: what failed while operators and kernels were registered, the Python modules that belong to them, and what
// kernels declare.
#pragma once

#include <backplane/registration.h>
#include <c10/core/ScalarType.h>

#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace backplane {

// "file:line: reason", one per block that failed and per kernel whose operator nobody has defined. Empty: every kernel was registered.
// `before_python`: an operator that a Python module shall define may be missing yet. Static initialisers have run once it can be called;
// what fails later, in a further library, is a warning, too.
std::vector<std::string> registration_errors(bool before_python);

struct PythonModule {
  std::string name;
  std::string site;  // "file:line"
};
std::vector<PythonModule> python_modules();  // in the order of their blocks; a name once

namespace detail {
void add_python_module(const Site& site, const char* name);
void add_registration_error(const Site& site, const std::exception& error);
}  // namespace detail

// The dtypes that the kernel of "aten::add.Tensor" declares to take; nothing if it declares none.
std::optional<std::vector<c10::ScalarType>> declared_dtypes(const std::string& op);

// What the kernel of an operator needs and the driver lacks, so that it never runs: "host functions (bp.host_exec)". Nothing if it can run.
// Opens the driver.
std::optional<std::string> unmet_needs(const std::string& op);

}  // namespace backplane
