// bindings/generated_kernel.cpp: modules.GeneratedKernel, a kernel that Python has the text of, and launches: torch.compile's.
//
// It is an object with a vectorcall: parsing a call by pybind11 takes longer than the launch.
#include "bindings/module.h"  // before anything else of Python

#include <c10/core/TensorImpl.h>
#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "modules/launch.h"
#include "runtime/options.h"
#include "runtime/reports.h"

namespace backplane::bindings {
namespace generated_kernel_impl {
namespace {

// One factor of the number of groups: a number, or an argument of the call, over the elements that a group takes of it.
struct Extent {
  int64_t value;
  int argument;  // -1: `value`
  bool tiled;
};

struct Kernel {
  KernelSource source;
  size_t pointers, values;  // of a call
  std::vector<Extent> extents;
  bool reports;
  std::array<std::atomic<const Function*>, kMaxDevices> functions{};

  const Function& function(c10::DeviceIndex device) {
    auto& known = functions.at(static_cast<size_t>(device));
    const Function* function = known.load(std::memory_order_acquire);
    if (C10_UNLIKELY(function == nullptr)) {
      const py::gil_scoped_release no_gil;
      function = &require_function(device, source);
      known.store(function, std::memory_order_release);
    }
    return *function;
  }

  uint64_t groups(const Function& function, const int64_t* numbers) const {
    uint64_t groups = 1;
    for (const Extent& extent : extents) {
      auto count = static_cast<uint64_t>(extent.argument < 0 ? extent.value : numbers[extent.argument]);
      if (extent.tiled) {
        const uint64_t tile = uint64_t{function.group} * source.per_item;
        count = (count + tile - 1) / tile;
      }
      groups *= count;
    }
    return groups;
  }

  void launch(PyObject* const* arguments) {
    KernelArguments block;
    c10::DeviceIndex device = -1;
    for (size_t i = 0; i < pointers; ++i) {
      TORCH_CHECK_TYPE(THPVariable_Check(arguments[i]), source.name, ": argument ", i, " must be a tensor, not ",
                       Py_TYPE(arguments[i])->tp_name);
      const at::Tensor& tensor = THPVariable_Unpack(arguments[i]);
      TORCH_CHECK_VALUE(tensor.device().type() == kDevice, source.name, ": argument ", i, " is on ", tensor.device(), ", not on ",
                        device_name());
      TORCH_CHECK_VALUE(device < 0 || device == tensor.device().index(), source.name, ": argument ", i, " is on ", tensor.device(),
                        ", others are on ", device_name(), ":", static_cast<int>(device));
      device = tensor.device().index();
      const bool is_written = (source.signature.written >> i & 1) != 0;
      block.add(reinterpret_cast<uint64_t>(is_written ? tensor.mutable_data_ptr() : tensor.const_data_ptr()));
    }
    if (reports) block.add(report_record(device));
    std::array<int64_t, KernelArguments::kMost / 8> numbers;
    for (size_t i = 0; i < values; ++i) {
      numbers[i] = PyLong_AsLongLong(arguments[pointers + i]);
      if (numbers[i] == -1 && PyErr_Occurred() != nullptr) throw python_error();
      block.add(numbers[i]);
    }
    block.add(reports ? report_site(source.name.c_str()) : uint64_t{0});
    const Function& function = this->function(device);
    const uint64_t count = groups(function, numbers.data());
    if (count == 0) return;
    launch_function(device, function, count, block);
    if (reports) raise_visible_reports(device);
  }
};

struct Object {
  PyObject_HEAD vectorcallfunc call;
  Kernel* kernel;  // lives as long as the process: its functions do
};

PyObject* call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  Kernel& kernel = *reinterpret_cast<Object*>(self)->kernel;
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  TORCH_CHECK_TYPE(names == nullptr && count == kernel.pointers + kernel.values, kernel.source.name, " takes ", kernel.pointers,
                   " tensors and ", kernel.values, " numbers, by position");
  kernel.launch(arguments);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* prepare(PyObject* self, PyObject* index) {
  HANDLE_TH_ERRORS
  const int64_t device = PyLong_AsLongLong(index);
  if (device == -1 && PyErr_Occurred() != nullptr) throw python_error();
  reinterpret_cast<Object*>(self)->kernel->function(device_index(device));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyTypeObject& type() {
  static PyMethodDef methods[] = {{"prepare", prepare, METH_O, "Compile it and load it on the device of that index, unless that is done."},
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

}  // namespace
}  // namespace generated_kernel_impl

void add_generated_kernel(py::module_& module) {
  using namespace generated_kernel_impl;
  if (PyType_Ready(&type()) < 0) throw py::error_already_set();
  // extents: value, index of a number of the call or -1, whether a group takes a tile of it. written: bit i of pointer i.
  def_quick(module, "generated_kernel",
            [](const std::string& name, const std::string& text, const std::vector<std::string>& files, uint32_t per_item, size_t pointers,
               size_t values, uint64_t written, bool reports, const std::vector<std::tuple<int64_t, int, bool>>& extents) {
              static const std::vector<std::string> known = {"math.bpc", "special.bpc", "philox.bpc", "generated.bpc"};
              auto kernel = std::make_unique<Kernel>();
              kernel->source = {name, "", {}, "generated", per_item, {}, text};
              for (const std::string& file : files) {
                const auto found = std::find(known.begin(), known.end(), file);
                TORCH_CHECK_VALUE(found != known.end(), "generated code has no use of ", file);
                kernel->source.files.push_back(found->c_str());
              }
              bp_signature& signature = kernel->source.signature;
              signature.struct_size = sizeof signature;
              signature.pointers = static_cast<uint32_t>(pointers + reports);
              signature.value_bytes = static_cast<uint32_t>(8 * (values + 1));
              signature.written = written | (reports ? uint64_t{1} << pointers : 0);
              TORCH_CHECK_VALUE(pointers + reports <= 64 && (pointers + reports + values + 1) * 8 <= KernelArguments::kMost, name,
                                " takes ", pointers, " tensors and ", values, " numbers, more than a kernel can");
              kernel->pointers = pointers;
              kernel->values = values;
              kernel->reports = reports;
              for (const auto& [value, argument, tiled] : extents) kernel->extents.push_back({value, argument, tiled});
              auto* object = PyObject_New(Object, &type());
              if (object == nullptr) throw py::error_already_set();
              object->call = call;
              object->kernel = kernel.release();
              return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
            });
}

}  // namespace backplane::bindings
