// bindings/function.h: C++ functions as Python functions. The conversions are pybind11's. What it would compile for each function (the
// table of overloads, the text of the signature, the translation of errors) is in function.cpp once for all, which saves a fifth of the
// bindings' build time.
#pragma once

#include <torch/csrc/utils/pybind.h>  // before anything else of Python

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace backplane::bindings {

namespace py = pybind11;

namespace detail {

struct Function;

// The values of one call.
struct Values {
  const Function& of;
  PyObject* const* objects;
};

[[noreturn]] void refuse(const Values& values, size_t i);  // a TypeError

template <typename T>
T from_python(const Values& values, size_t i) {
  py::detail::make_caster<T> caster;
  if (!caster.load(values.objects[i], /*convert=*/true)) refuse(values, i);
  return py::detail::cast_op<T>(std::move(caster));
}

using Erased = void (*)();
using Call = PyObject* (*)(Erased function, const Values& values, bool blocking);  // a new reference; throws

template <typename Return, typename... Arguments, size_t... i>
PyObject* convert_and_call(Erased erased, const Values& values, bool blocking, std::index_sequence<i...>) {
  const auto function = reinterpret_cast<Return (*)(Arguments...)>(erased);
  [[maybe_unused]] std::tuple<std::decay_t<Arguments>...> arguments{from_python<std::decay_t<Arguments>>(values, i)...};
  std::optional<py::gil_scoped_release> no_gil;
  if (blocking) no_gil.emplace();
  if constexpr (std::is_void_v<Return>) {
    function(std::get<i>(arguments)...);
    no_gil.reset();
    Py_RETURN_NONE;
  } else {
    Return result = function(std::get<i>(arguments)...);
    no_gil.reset();
    return py::detail::make_caster<Return>::cast(std::move(result), py::return_value_policy::move, py::handle()).ptr();
  }
}

template <typename Return, typename... Arguments>
PyObject* call(Erased function, const Values& values, bool blocking) {
  return convert_and_call<Return, Arguments...>(function, values, blocking, std::index_sequence_for<Arguments...>());
}

void define(py::module_& module, const char* name, Erased function, Call call, size_t arguments, bool blocking);

template <typename Return, typename... Arguments>
void define(py::module_& module, const char* name, Return (*function)(Arguments...), bool blocking) {
  define(module, name, reinterpret_cast<Erased>(function), &call<Return, Arguments...>, sizeof...(Arguments), blocking);
}

}  // namespace detail

// Defines a function that may block or run long: the GIL is released. It takes its arguments by position; `name` is a literal. Errors
// become PyTorch's Python exceptions, a wrong number or type of arguments a TypeError.
template <typename Function>
void def_blocking(py::module_& module, const char* name, const Function& function) {
  detail::define(module, name, +function, true);
}

// As above for a function that returns at once: the GIL is kept.
template <typename Function>
void def_quick(py::module_& module, const char* name, const Function& function) {
  detail::define(module, name, +function, false);
}

}  // namespace backplane::bindings
