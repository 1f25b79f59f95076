// bindings/interrupts.cpp: lets Ctrl-C interrupt a wait for the device: the runtime calls this between slices of the wait.
#include "bindings/module.h"
#include "runtime/options.h"
#include "runtime/wait.h"
#include "runtime/watchdog.h"

namespace backplane::bindings {
namespace {

// Python's own KeyboardInterrupt has no text.
void describe_interrupt() {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0) return;
  py::error_already_set error;
  if (py::len(error.value().attr("args")) == 0) {
    const std::string text = std::string("in a wait for ") + device_name() + interrupted_work();
    error.value().attr("args") = py::make_tuple(text);
  }
  error.restore();
}

// Called without the GIL, from any thread; only the main thread can receive a signal.
void check_signals() {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  describe_interrupt();
  python_error error;
  error.persist();
  throw error;
}

}  // namespace

void bind_interrupts() { set_interrupt_check(check_signals); }

}  // namespace backplane::bindings
