// bindings/module.cpp: the Python module _C of a backend package. Everything in it is registered without Python; this only makes it
// callable.
#include "bindings/module.h"

PYBIND11_MODULE(_C, module) {
  using namespace backplane::bindings;
  module.doc() = "Native part of the backend; use torch." BACKPLANE_DEVICE_NAME " instead.";
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
}
