// bindings/module.h: declarations that the parts of the _C module share. Bindings only convert arguments and handle the GIL.
#pragma once

#include "bindings/function.h"  // before anything else of Python

#include <c10/core/Stream.h>
#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <string>

#include "runtime/device.h"

namespace backplane {
class GeneratedKernel;
}

namespace backplane::bindings {

void bind_devices(py::module_& module);
void bind_driver(py::module_& module);
void bind_streams(py::module_& module);
void bind_memory(py::module_& module);
void bind_history(py::module_& module);
void bind_random(py::module_& module);
void bind_kernels(py::module_& module);
void bind_modules(py::module_& module);
void bind_fallback(py::module_& module);
void bind_observer(py::module_& module);
void bind_ipc(py::module_& module);
void bind_dlpack(py::module_& module);
void bind_graphs(py::module_& module);
void bind_order_log(py::module_& module);
void bind_profiler(py::module_& module);
void bind_interrupts();
// The text of repr(event) (event_repr.cpp).
void show_events();

// None removes the hook; see torch_backplane.fallback.hook.
void set_fallback_hook(const py::object& function);
// Computes an operator on the CPU, whatever kernel the device has for it.
py::object run_fallback(const std::string& name, const std::string& overload, const py::tuple& args, const py::dict& kwargs);

// modules.GeneratedKernel: a kernel with a source from Python (generated_kernel.cpp).
void add_generated_kernel(py::module_& module);
// The kernel of such an object. Throws a TypeError for another object.
GeneratedKernel& generated_kernel_of(PyObject* object);
// Compiles and loads it without the GIL, at the first call on a device.
void load_generated_kernel(GeneratedKernel& kernel, c10::DeviceIndex device);
// modules.triton_launcher: the launcher of a Triton kernel (triton_launcher.cpp).
void add_triton_launcher(py::module_& module);
// modules.empty_strided: a tensor of the device, with minimal overhead (empty_strided.cpp).
void add_empty_strided(py::module_& module);

// Converts Python's int to a device index; a value out of range gets the error of an index that does not exist.
inline c10::DeviceIndex device_index(int64_t device) {
  if (device < -1 || device >= kMaxDevices) refuse_device(device);
  return static_cast<c10::DeviceIndex>(device);
}

// C++ objects of a class that Python holds as capsules, which own them.
template <typename T>
struct Capsules {
  const char* name;  // "backplane.Graph"

  py::capsule hold(T* object) const {
    return py::capsule(object, name, [](void* held) {
      const py::gil_scoped_release no_gil;
      delete static_cast<T*>(held);
    });
  }
  T& get(const py::capsule& capsule) const {
    TORCH_CHECK_TYPE(PyCapsule_IsValid(capsule.ptr(), name) != 0, "the capsule does not contain a ", name);
    return *capsule.get_pointer<T>();
  }
  // Calls `use` with the object, without the GIL.
  template <typename Use>
  auto use(const py::capsule& capsule, const Use& use) const {
    T& object = get(capsule);
    const py::gil_scoped_release no_gil;
    return use(object);
  }
};

// The stream with these two numbers; the device is checked.
c10::Stream stream_of(int64_t id, int64_t device);

}  // namespace backplane::bindings
