// bindings/function.cpp: how Python calls the functions of bindings/function.h.
#include "bindings/function.h"

#include <torch/csrc/Exceptions.h>

#include <string>

namespace backplane::bindings::detail {

struct Function {
  PyMethodDef method;
  std::string shown;  // its name in errors, with that of its module: "streams.priority"
  Erased function;
  Call call;
  Py_ssize_t arguments;
  bool blocking;
};

namespace {

PyObject* call_function(PyObject* self, PyObject* const* objects, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto& function = *static_cast<const Function*>(PyCapsule_GetPointer(self, nullptr));
  TORCH_CHECK_TYPE(count == function.arguments, function.shown, "() takes ", function.arguments, " argument(s), not ", count);
  return function.call(function.function, {function, objects}, function.blocking);
  END_HANDLE_TH_ERRORS
}

}  // namespace

void refuse(const Values& values, size_t i) {
  TORCH_CHECK_TYPE(false, "argument ", i + 1, " of ", values.of.shown, "() cannot be of type ", Py_TYPE(values.objects[i])->tp_name);
}

void define(py::module_& module, const char* name, Erased function, Call call, size_t arguments, bool blocking) {
  const auto method = reinterpret_cast<PyCFunction>(reinterpret_cast<Erased>(&call_function));
  const std::string of = PyModule_GetName(module.ptr());
  // It lives as long as the process, as Python functions may.
  auto* kept = new Function{{name, method, METH_FASTCALL, nullptr},
                            of.substr(of.rfind('.') + 1) + "." + name,
                            function,
                            call,
                            static_cast<Py_ssize_t>(arguments),
                            blocking};
  module.attr(name) = py::reinterpret_steal<py::object>(PyCFunction_New(&kept->method, py::capsule(kept).ptr()));
}

}  // namespace backplane::bindings::detail
