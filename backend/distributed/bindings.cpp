// distributed/bindings.cpp: the Python module _distributed of a backend package, loaded by the first process group. Its one class is a
// torch.distributed backend and inherits what torch's own class binds.
#include <torch/csrc/utils/pybind.h>  // before anything else of Python

#include <pybind11/chrono.h>

#include <utility>

#include "distributed/interpreter.h"
#include "distributed/process_group.h"
#include "runtime/device.h"

namespace backplane::distributed {
namespace {

namespace py = pybind11;

// torch holds its backends by such a pointer: destroying one may wait for threads, which may need the GIL.
template <class T>
class Holder {
 public:
  Holder() = default;
  explicit Holder(T* object) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(object)) {}
  Holder(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}  // NOLINT: pybind11 converts implicitly
  Holder(const Holder&) = default;
  Holder(Holder&&) noexcept = default;
  Holder& operator=(const Holder&) = default;
  Holder& operator=(Holder&&) noexcept = default;
  ~Holder() {
    if (pointer_ && PyGILState_Check() != 0) {
      const py::gil_scoped_release no_gil;
      pointer_.reset();
    }
  }
  T* get() const { return pointer_.get(); }

 private:
  c10::intrusive_ptr<T> pointer_;
};

// A Python function in C++: called with the GIL, from any thread, and never destroyed, since that may happen after the interpreter has
// ended. Empty for None.
GlooFactory gloo_factory(const py::object& function) {
  if (function.is_none()) return {};
  return [function = function.inc_ref().ptr()](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::milliseconds timeout) {
    const py::gil_scoped_acquire gil;
    return py::cast<c10::intrusive_ptr<c10d::Backend>>(py::handle(function)(store, rank, size, timeout));
  };
}

Holder<ProcessGroup> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                const c10::intrusive_ptr<GroupOptions>& options, const py::object& make_gloo, bool is_native) {
  GlooFactory factory = gloo_factory(make_gloo);
  const py::gil_scoped_release no_gil;
  return Holder<ProcessGroup>(c10::make_intrusive<ProcessGroup>(store, rank, size, options, std::move(factory), is_native));
}

}  // namespace
}  // namespace backplane::distributed

PYBIND11_DECLARE_HOLDER_TYPE(T, backplane::distributed::Holder<T>, true)

PYBIND11_MODULE(_distributed, module) {
  using namespace backplane::distributed;
  module.doc() = "The process group of the device; use torch.distributed instead.";
  py::module_::import("torch.distributed");  // imports the base classes

  py::class_<GroupOptions, c10d::Backend::Options, c10::intrusive_ptr<GroupOptions>>(module, "Options")
      .def(py::init([](std::chrono::milliseconds timeout) { return c10::make_intrusive<GroupOptions>(timeout); }),
           py::arg("timeout") = kBackendDefaultTimeout)
      .def("__copy__", [](const GroupOptions& self) { return c10::make_intrusive<GroupOptions>(self); })
      .def("__deepcopy__", [](const GroupOptions& self, const py::dict&) { return c10::make_intrusive<GroupOptions>(self); });

  py::class_<ProcessGroup, c10d::Backend, Holder<ProcessGroup>>(module, "ProcessGroup")
      .def(py::init(&make_group), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), py::arg("make_gloo"),
           py::arg("is_native"))
      .def_property_readonly("engine", &ProcessGroup::engine)
      .def_property_readonly("options",
                             [](ProcessGroup& self) { return c10::static_intrusive_pointer_cast<GroupOptions>(self.getBackendOptions()); })
      // Called by a rank that is in no part of a split; it has nothing to do.
      .def("perform_nocolor_split", [](const ProcessGroup&, const py::object&) {})
      .def("_set_default_timeout", &ProcessGroup::setTimeout, py::call_guard<py::gil_scoped_release>());

  module.def(
      "most_ranks", []() -> int { return collective_properties(backplane::current_device()).max_size; },
      "Of a communicator of the driver, on the current device; 0: any number.", py::call_guard<py::gil_scoped_release>());
  module.def("end_of_interpreter", &end_of_interpreter, py::call_guard<py::gil_scoped_release>());
}
