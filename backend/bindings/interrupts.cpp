// bindings/interrupts.cpp: lets Ctrl-C end a wait for the device: the runtime asks between slices of the wait.
#include "bindings/module.h"
#include "runtime/wait.h"

namespace backplane::bindings {
namespace {

// Called without the GIL, from any thread; only the main thread ever finds a signal.
void check_signals() {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  python_error error;
  error.persist();
  throw error;
}

}  // namespace

void bind_interrupts() { set_interrupt_check(check_signals); }

}  // namespace backplane::bindings
