// bindings/module.cpp: the Python module _C of a backend package. Everything in it is registered without Python; this only makes it
// callable. In Python's own terms: PYBIND11_MODULE would bring pybind11's registry of classes, of which there are none here.
#include "bindings/module.h"

// NOLINTNEXTLINE(readability-identifier-naming): Python's name
extern "C" PYBIND11_EXPORT PyObject* PyInit__C() {
  using namespace backplane::bindings;
  static PyModuleDef definition{};
  definition.m_base = PyModuleDef_HEAD_INIT;
  definition.m_name = "_C";
  definition.m_doc = "Native part of the backend; use torch." BACKPLANE_DEVICE_NAME " instead.";
  definition.m_size = -1;  // one interpreter has it
  auto module = py::reinterpret_steal<py::module_>(PyModule_Create(&definition));
  if (!module) return nullptr;
  try {
    module.attr("version") = BACKPLANE_VERSION;
    module.attr("core_protocol") = BACKPLANE_CORE_PROTOCOL;
    bind_driver(module);
    bind_devices(module);
    bind_streams(module);
    bind_memory(module);
    bind_history(module);
    bind_random(module);
    bind_kernels(module);
    bind_fallback(module);
    bind_observer(module);
    bind_ipc(module);
    bind_order_log(module);
    bind_interrupts();
    return module.release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}
