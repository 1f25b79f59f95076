// bindings/module.cpp: the Python module _C of a backend package, with a submodule for each part; python/torch_backplane/_native.pyi has
// their types. Everything in it is registered without Python; this only makes it callable. It uses the C API of Python: PYBIND11_MODULE
// would add pybind11's registry of classes, of which there are none here.
#include "bindings/module.h"

namespace backplane::bindings {
namespace {

void add_part(py::module_& module, const char* name, void (*bind)(py::module_& part)) {
  py::module_ part = module.def_submodule(name);
  bind(part);
}

}  // namespace
}  // namespace backplane::bindings

// NOLINTNEXTLINE(readability-identifier-naming): Python's name
extern "C" PYBIND11_EXPORT PyObject* PyInit__C() {
  using namespace backplane::bindings;
  static PyModuleDef definition{};
  definition.m_base = PyModuleDef_HEAD_INIT;
  definition.m_name = "_C";
  definition.m_doc = "Native part of the backend; use torch." BACKPLANE_DEVICE_NAME " instead.";
  definition.m_size = -1;  // one interpreter only
  auto module = py::reinterpret_steal<py::module_>(PyModule_Create(&definition));
  if (!module) return nullptr;
  try {
    module.attr("version") = BACKPLANE_VERSION;
    module.attr("core_protocol") = BACKPLANE_CORE_PROTOCOL;
    module.attr("abi") = py::make_tuple(BP_ABI_MAJOR, BP_ABI_MINOR);
    add_part(module, "driver", bind_driver);
    add_part(module, "devices", bind_devices);
    add_part(module, "streams", bind_streams);
    add_part(module, "memory", bind_memory);
    add_part(module, "history", bind_history);
    add_part(module, "random", bind_random);
    add_part(module, "kernels", bind_kernels);
    add_part(module, "modules", bind_modules);
    add_part(module, "fallback", bind_fallback);
    add_part(module, "observer", bind_observer);
    add_part(module, "ipc", bind_ipc);
    add_part(module, "dlpack", bind_dlpack);
    add_part(module, "graphs", bind_graphs);
    add_part(module, "order_log", bind_order_log);
    add_part(module, "profiler", bind_profiler);
    bind_interrupts();
    return module.release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}
