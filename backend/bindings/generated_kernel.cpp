// bindings/generated_kernel.cpp: modules.GeneratedKernel, a kernel with a source from Python, which launches it: torch.compile's.
//
// It is an object with a vectorcall: parsing a call with pybind11 takes longer than the launch.
#include "bindings/module.h"  // before anything else of Python

#include <c10/core/TensorImpl.h>
#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

#include "inductor/kernel.h"
#include "runtime/device.h"

namespace backplane::bindings {
namespace generated_kernel_impl {
namespace {

void launch(GeneratedKernel& kernel, PyObject* const* arguments) {
  kernel.launch(
      [&](size_t i) -> const at::Tensor& {
        TORCH_CHECK_TYPE(THPVariable_Check(arguments[i]), kernel.source().name, ": argument ", i, " must be a tensor, not ",
                         Py_TYPE(arguments[i])->tp_name);
        const at::Tensor& tensor = THPVariable_Unpack(arguments[i]);
        TORCH_CHECK_TYPE(!tensor.key_set().has(c10::DispatchKey::Python), kernel.source().name, ": argument ", i, " is a ",
                         Py_TYPE(arguments[i])->tp_name, ", which has no memory of its own: a compiled program requires plain tensors");
        if (i == 0 && tensor.device().type() == kDevice) load_generated_kernel(kernel, tensor.device().index());
        return tensor;
      },
      [&](size_t i) {
        const int64_t number = PyLong_AsLongLong(arguments[kernel.tensors() + i]);
        if (number == -1 && PyErr_Occurred() != nullptr) throw python_error();
        return number;
      });
}

struct Object {
  PyObject_HEAD vectorcallfunc call;
  GeneratedKernel* kernel;  // lives as long as the process, because its functions do
};

PyObject* call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  GeneratedKernel& kernel = *reinterpret_cast<Object*>(self)->kernel;
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  TORCH_CHECK_TYPE(names == nullptr && count == kernel.tensors() + kernel.numbers(), kernel.source().name, " takes ", kernel.tensors(),
                   " tensors and ", kernel.numbers(), " numbers, by position");
  TORCH_CHECK_TYPE(!kernel.is_ttir(), kernel.source().name, " is a kernel of Triton, which Triton's launcher launches");
  launch(kernel, arguments);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* prepare(PyObject* self, PyObject* index) {
  HANDLE_TH_ERRORS
  const int64_t device = PyLong_AsLongLong(index);
  if (device == -1 && PyErr_Occurred() != nullptr) throw python_error();
  load_generated_kernel(*reinterpret_cast<Object*>(self)->kernel, device_index(device));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* code_for(PyObject* self, PyObject* target) {
  HANDLE_TH_ERRORS
  const char* name = PyUnicode_AsUTF8(target);
  if (name == nullptr) throw python_error();
  const KernelSource& source = reinterpret_cast<Object*>(self)->kernel->source();
  const auto [key, code] = [&] {
    const py::gil_scoped_release no_gil;
    return backplane::code_for(name, source);
  }();
  return py::make_tuple(key, py::bytes(code.data(), code.size())).release().ptr();
  END_HANDLE_TH_ERRORS
}

PyObject* ttir_facts(PyObject* self, PyObject*) {
  HANDLE_TH_ERRORS
  const GeneratedKernel& kernel = *reinterpret_cast<Object*>(self)->kernel;
  TORCH_CHECK(kernel.is_ttir(), kernel.source().name, " is no kernel of TTIR");
  const TtirFacts facts = [&] {
    const py::gil_scoped_release no_gil;
    return backplane::ttir_facts(current_device(), kernel.source());
  }();
  return py::make_tuple(facts.parameters, facts.local_bytes).release().ptr();
  END_HANDLE_TH_ERRORS
}

PyTypeObject& type() {
  static PyMethodDef methods[] = {
      {"prepare", prepare, METH_O, "Compile it and load it on the device of that index, unless that is done."},
      {"code_for", code_for, METH_O, "(key, bytes): its code for the target of that name."},
      {"ttir_facts", ttir_facts, METH_NOARGS, "(parameters, local_bytes), of TTIR: compiles, unless that is done."},
      {nullptr, nullptr, 0, nullptr}};
  static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Object, call), READONLY, nullptr},
                                  {nullptr, 0, 0, 0, nullptr}};
  static PyTypeObject instance = [] {
    PyTypeObject type{};
    type.tp_name = "GeneratedKernel";
    type.tp_basicsize = sizeof(Object);
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    type.tp_vectorcall_offset = offsetof(Object, call);
    type.tp_call = PyVectorcall_Call;
    type.tp_methods = methods;
    type.tp_members = members;
    return type;
  }();
  return instance;
}

py::object object_of(std::unique_ptr<GeneratedKernel> kernel) {
  auto* object = PyObject_New(Object, &type());
  if (object == nullptr) throw py::error_already_set();
  object->call = call;
  object->kernel = kernel.release();
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
}

}  // namespace
}  // namespace generated_kernel_impl

GeneratedKernel& generated_kernel_of(PyObject* object) {
  using namespace generated_kernel_impl;
  TORCH_CHECK_TYPE(Py_TYPE(object) == &type(), "expected a GeneratedKernel, not ", Py_TYPE(object)->tp_name);
  return *reinterpret_cast<Object*>(object)->kernel;
}

void load_generated_kernel(GeneratedKernel& kernel, c10::DeviceIndex device) {
  if (kernel.is_loaded(device)) return;
  const py::gil_scoped_release no_gil;
  kernel.function(device);
}

void add_generated_kernel(py::module_& module) {
  using namespace generated_kernel_impl;
  if (PyType_Ready(&type()) < 0) throw py::error_already_set();
  // extents: value, index of a number of the call or -1, elements of it per group. written: bit i for tensor i.
  def_quick(module, "generated_kernel",
            [](const std::string& name, const std::string& definitions, const std::string& text, const std::vector<std::string>& files,
               uint32_t per_item, size_t tensors, size_t numbers, uint64_t written, bool reports,
               const std::vector<std::tuple<int64_t, int, int64_t>>& extents) {
              std::vector<generated::Extent> known;
              for (const auto& [value, argument, elements] : extents) known.push_back({value, argument, elements});
              return object_of(std::make_unique<GeneratedKernel>(name, definitions, text, files, per_item, tensors, numbers, written,
                                                                 reports, std::move(known)));
            });
  def_quick(module, "ttir_kernel",
            [](const std::string& name, const std::string& text, const std::string& triton, uint32_t num_warps, uint32_t num_stages,
               size_t pointers, size_t numbers) {
              return object_of(std::make_unique<GeneratedKernel>(name, text, triton, num_warps, num_stages, pointers, numbers));
            });
}

}  // namespace backplane::bindings
