// bindings/fallback_hook.cpp: a Python function that is called first for every call of the CPU fallback, and the fallback as a function of
// Python. The only file that converts boxed values.
#include "bindings/module.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Exceptions.h>

#include <mutex>

#include "dispatch/defaults.h"
#include "fallback/fallback.h"

// torch's conversions between Python's values and boxed ones, from torch/csrc/jit/python/pybind_utils.h. Not included: that one header
// takes as long to compile as the rest of the bindings. With a torch that declares them otherwise the library fails to link, and names
// them.
namespace torch::jit {
TORCH_PYTHON_API c10::IValue toIValue(pybind11::handle object, const c10::TypePtr& type, std::optional<int32_t> length);
TORCH_PYTHON_API pybind11::object toPyObject(c10::IValue value);
}  // namespace torch::jit

namespace backplane::bindings {
namespace {

std::mutex hook_mutex;  // never held while Python is entered
PyObject* hook_function = nullptr;

py::object current_hook() {
  const std::lock_guard<std::mutex> lock(hook_mutex);
  return hook_function == nullptr ? py::object() : py::reinterpret_borrow<py::object>(hook_function);
}

// One result as it is, several as a tuple, no results as any value.
void push_results(const c10::FunctionSchema& schema, const py::object& results, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& returns = schema.returns();
  if (returns.size() == 1) {
    stack->push_back(torch::jit::toIValue(results, returns[0].type(), std::nullopt));
  } else if (!returns.empty()) {
    const py::tuple tuple(results);
    TORCH_CHECK(tuple.size() == returns.size(), "the fallback's hook returned ", tuple.size(), " results for ", schema.operator_name(),
                ", which has ", returns.size());
    for (size_t i = 0; i < returns.size(); ++i) stack->push_back(torch::jit::toIValue(tuple[i], returns[i].type(), std::nullopt));
  }
}

// The arguments with which Python calls an operator, defaults filled in.
void push_arguments(const c10::FunctionSchema& schema, const py::tuple& args, const py::dict& kwargs, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = schema.arguments();
  size_t given = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = arguments[i];
    const bool is_positional = i < args.size() && !argument.kwarg_only();
    if (is_positional || kwargs.contains(argument.name())) {
      const py::object value = is_positional ? py::object(args[i]) : py::object(kwargs[py::str(argument.name())]);
      stack->push_back(torch::jit::toIValue(value, argument.real_type(), argument.N()));
      ++given;
    } else {
      TORCH_CHECK(argument.default_value().has_value(), schema.operator_name(), " is missing its argument \"", argument.name(),
                  "\": ", schema);
      stack->push_back(*argument.default_value());
    }
  }
  TORCH_CHECK(given == args.size() + kwargs.size(), schema.operator_name(), " got unexpected arguments: ", schema);
}

bool run_hook(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const py::gil_scoped_acquire gil;
  const py::object function = current_hook();
  if (!function) return false;
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  py::list args;
  py::dict kwargs;
  for (size_t i = 0; i < count; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    py::object value = torch::jit::toPyObject((*stack)[stack->size() - count + i]);
    if (argument.kwarg_only()) {
      kwargs[py::str(argument.name())] = std::move(value);
    } else {
      args.append(std::move(value));
    }
  }
  const c10::OperatorName& name = op.operator_name();
  try {
    const py::object results = function(name.name, name.overload_name, py::tuple(args), kwargs);
    if (results.is(py::handle(Py_NotImplemented))) return false;
    stack->erase(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    push_results(schema, results, stack);
  } catch (py::error_already_set& error) {
    error.restore();
    python_error kept;  // torch's own bindings raise it again unchanged
    kept.persist();
    throw kept;
  }
  return true;
}

}  // namespace

void set_fallback_hook(const py::object& function) {
  py::object previous;
  {
    const std::lock_guard<std::mutex> lock(hook_mutex);
    previous = py::reinterpret_steal<py::object>(hook_function);
    hook_function = function.is_none() ? nullptr : py::object(function).release().ptr();
  }
  fallback::set_python_hook(function.is_none() ? nullptr : &run_hook);
}

py::object run_fallback(const std::string& name, const std::string& overload, const py::tuple& args, const py::dict& kwargs) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  torch::jit::Stack stack;
  push_arguments(op.schema(), args, kwargs, &stack);
  {
    const py::gil_scoped_release no_gil;
    decline(op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &stack);
  }
  if (stack.size() == 1) return torch::jit::toPyObject(std::move(stack[0]));
  py::tuple results(stack.size());
  for (size_t i = 0; i < stack.size(); ++i) results[i] = torch::jit::toPyObject(std::move(stack[i]));
  return stack.empty() ? py::none() : py::object(results);
}

}  // namespace backplane::bindings
