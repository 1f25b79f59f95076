// aten/registration.cpp: runs the BACKPLANE_KERNELS blocks at load and keeps what failed in them, for the import to report.
#include "aten/registration.h"

#include <backplane/signature.h>

#include <exception>

namespace backplane {
namespace registration_impl {
namespace {

c10::OperatorName operator_name(std::string name) {
  if (name.find("::") == std::string::npos) name = "aten::" + name;
  const size_t dot = name.find('.');
  return {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)};
}

// Static initialisers are in no given order, so not a namespace-scope object.
std::vector<std::string>& errors() {
  static std::vector<std::string>* const instance = new std::vector<std::string>;
  return *instance;
}

}  // namespace
}  // namespace registration_impl

std::vector<std::string> registration_errors() { return registration_impl::errors(); }

void Kernels::check(const char* name) const {
  const auto op = c10::Dispatcher::singleton().findSchema(registration_impl::operator_name(std::string(name_space_) + "::" + name));
  TORCH_CHECK(op.has_value(), "there is no operator ", name_space_, "::", name,
              " in this torch; torch._C._dispatch_get_all_op_names() lists them");
}

namespace detail {

Registration::Registration(const char* name_space, void (*block)(Kernels&), const char* file, uint32_t line) {
  try {
    // Lives as long as the process: a library that goes takes its kernels along.
    auto* library = new torch::Library(torch::Library::IMPL, name_space, c10::DispatchKey::PrivateUse1, file, line);
    Kernels kernels(*library, name_space);
    block(kernels);
  } catch (const c10::Error& error) {
    registration_impl::errors().push_back(c10::str(file, ":", line, ": ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    registration_impl::errors().push_back(c10::str(file, ":", line, ": ", error.what()));
  }
}

c10::OperatorHandle find_operator(const char* name) {
  const c10::OperatorName parsed = registration_impl::operator_name(name);
  return c10::Dispatcher::singleton().findSchemaOrThrow(parsed.name.c_str(), parsed.overload_name.c_str());
}

}  // namespace detail
}  // namespace backplane
