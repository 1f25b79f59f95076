// bindings/empty_strided.cpp: modules.empty_strided(size, stride, dtype, device), for the modules that Inductor generates: takes half the
// time of torch.empty_strided, which parses names and uses the dispatcher. Like torch's own for the CPU and CUDA, it ignores modes.
#include "bindings/module.h"  // before anything else of Python

#include <c10/util/SmallVector.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "tensor/tensors.h"

namespace backplane::bindings {
namespace empty_strided_impl {
namespace {

using Sizes = c10::SmallVector<int64_t, 6>;

Sizes sizes_in(PyObject* tuple) {
  TORCH_CHECK_TYPE(PyTuple_Check(tuple), "empty_strided: sizes and strides must be tuples of integers, not ", Py_TYPE(tuple)->tp_name);
  Sizes sizes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    if (sizes.back() == -1 && PyErr_Occurred() != nullptr) throw python_error();
  }
  return sizes;
}

PyObject* empty_strided(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4, "modules.empty_strided() takes 4 argument(s), not ", count);
  TORCH_CHECK_TYPE(THPDtype_Check(arguments[2]) && PyLong_Check(arguments[3]),
                   "modules.empty_strided() takes a size, a stride, a dtype and the index of a device");
  const Sizes size = sizes_in(arguments[0]), stride = sizes_in(arguments[1]);
  TORCH_CHECK_VALUE(size.size() == stride.size(), "empty_strided: ", size.size(), " sizes and ", stride.size(), " strides");
  const c10::DeviceIndex device = resolve_device(device_index(PyLong_AsLongLong(arguments[3])));
  at::Tensor tensor = empty_strided_tensor(size, stride, reinterpret_cast<THPDtype*>(arguments[2])->scalar_type, device);
  if (C10_UNLIKELY(fills_uninitialized())) fill_uninitialized(tensor);
  return THPVariable_Wrap(std::move(tensor));
  END_HANDLE_TH_ERRORS
}

}  // namespace
}  // namespace empty_strided_impl

void add_empty_strided(py::module_& module) {
  static PyMethodDef method = {"empty_strided", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&empty_strided_impl::empty_strided)),
                               METH_FASTCALL, "A tensor of the device: size, stride, dtype, the device's index."};
  module.attr("empty_strided") = py::reinterpret_steal<py::object>(PyCFunction_New(&method, nullptr));
}

}  // namespace backplane::bindings
