// bindings/event_repr.cpp: the repr() of an event of the device.
//
// An Event is a torch.Event itself, since torch's methods do not accept a subclass of it, so its repr is that of torch's type. That repr is
// kept for events of other devices.
#include "bindings/module.h"
#include "runtime/options.h"

namespace backplane::bindings {
namespace {

reprfunc torchs_repr = nullptr;

PyObject* event_repr(PyObject* self) {
  try {
    const py::handle event(self);
    const auto device = event.attr("device");
    if (py::str(device.attr("type")).cast<std::string>() != device_name()) return torchs_repr(self);
    const auto id = event.attr("event_id").cast<uintptr_t>();
    if (id == 0) return PyUnicode_FromFormat("<torch.%s.Event uninitialized>", device_name());
    return PyUnicode_FromFormat("<torch.%s.Event %p device=%S>", device_name(), reinterpret_cast<void*>(id), device.ptr());
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

}  // namespace

void show_events() {
  auto* const type = reinterpret_cast<PyTypeObject*>(py::module_::import("torch").attr("Event").ptr());
  if (type->tp_repr == &event_repr) return;
  torchs_repr = type->tp_repr;
  type->tp_repr = &event_repr;
}

}  // namespace backplane::bindings
