// bindings/triton_launcher.cpp: modules.triton_launcher, what Triton calls to launch a kernel: it finds the pointers and numbers of the
// kernel in the arguments of the user's function. Triton's interface: triton/compiler/compiler.py, CompiledKernel.run.
#include "bindings/module.h"  // before anything else of Python

#include <c10/core/DeviceGuard.h>
#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "inductor/kernel.h"
#include "runtime/device.h"

namespace backplane::bindings {
namespace triton_launcher_impl {
namespace {

// Of a call: the grid, the stream, the kernel, packed and launch metadata, two hooks. The user's arguments follow.
enum Position : size_t { kGrid = 0, kKernel = 4, kMetadata = 6, kEnter = 7, kLeave = 8, kFirst = 9 };
enum class Kind : char { pointer = 'p', integer = 'i', float32 = 'f', float64 = 'd' };

struct Argument {
  std::vector<size_t> path;  // in nested tuples
  Kind kind;
};

struct Object {
  PyObject_HEAD vectorcallfunc call;
  std::vector<Argument>* arguments;
  PyObject* accesses;  // for the observer
};

// The stream sanitizer's, else NULL: called before a launch with the kernel's name, the accesses, and the object of each pointer.
PyObject* observer = nullptr;

// What a tensor of a transform is made of, and views whose elements are not those in memory.
constexpr c10::DispatchKeySet kWithoutMemory{c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
                                             c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::ZeroTensor};
constexpr c10::DispatchKeySet kLazy{c10::DispatchKey::Negative, c10::DispatchKey::Conjugate};

PyObject* find(PyObject* const* arguments, size_t count, const std::vector<size_t>& path) {
  TORCH_CHECK_TYPE(path[0] < count, "a Triton kernel is launched with too few arguments");
  PyObject* found = arguments[path[0]];
  for (size_t i = 1; i < path.size(); ++i) {
    TORCH_CHECK_TYPE(PyTuple_Check(found) && path[i] < static_cast<size_t>(PyTuple_GET_SIZE(found)), "argument ", path[0],
                     " of a Triton kernel must be a tuple of at least ", path[i] + 1, ", not ", Py_TYPE(found)->tp_name);
    found = PyTuple_GET_ITEM(found, static_cast<Py_ssize_t>(path[i]));
  }
  return found;
}

int64_t integer(PyObject* object) {
  const auto number = static_cast<int64_t>(PyLong_AsUnsignedLongLongMask(object));
  if (number == -1 && PyErr_Occurred() != nullptr) throw python_error();
  return number;
}

int64_t bits_of(PyObject* object, Kind kind) {
  if (kind == Kind::integer) return integer(object);
  const double number = PyFloat_AsDouble(object);
  if (number == -1.0 && PyErr_Occurred() != nullptr) throw python_error();
  if (kind == Kind::float64) return c10::bit_cast<int64_t>(number);
  return c10::bit_cast<uint32_t>(static_cast<float>(number));
}

// device: of the tensors before it, -1 if there was none.
uint64_t address_of(PyObject* object, const GeneratedKernel& kernel, c10::DeviceIndex& device) {
  if (THPVariable_Check(object)) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    TORCH_CHECK_TYPE(!tensor.key_set().has_any(kWithoutMemory), kernel.source().name, ": an argument is a ", Py_TYPE(object)->tp_name,
                     " of a mode or a transform (", tensor.key_set(), "), which has no memory of its own: a Triton kernel takes plain ",
                     "tensors. Make the launch an operator with torch.library.triton_op or custom_op");
    TORCH_CHECK_VALUE(!tensor.key_set().has_any(kLazy), kernel.source().name, ": an argument is a view that negates or conjugates its ",
                      "elements when they are read; pass tensor.resolve_neg() or tensor.resolve_conj()");
    TORCH_CHECK_VALUE(tensor.device().type() == kDevice, "Pointer argument cannot be accessed from Triton: a tensor of ",
                      kernel.source().name, " is on ", tensor.device(), ", not on ", device_name(), "; move it with tensor.to(\"",
                      device_name(), "\")");
    TORCH_CHECK_VALUE(device < 0 || tensor.device().index() == device, kernel.source().name, ": tensors are on ", device_name(), ":",
                      static_cast<int>(device), " and on ", tensor.device());
    device = tensor.device().index();
    return reinterpret_cast<uint64_t>(tensor.mutable_data_ptr());
  }
  if (object == Py_None) return 0;
  if (PyLong_Check(object)) return static_cast<uint64_t>(integer(object));
  const auto pointer = py::reinterpret_steal<py::object>(PyObject_CallMethod(object, "data_ptr", nullptr));
  if (!pointer) throw python_error();
  return static_cast<uint64_t>(integer(pointer.ptr()));
}

void observe(const Object& self, const GeneratedKernel& kernel, PyObject* const* arguments, size_t count) {
  const py::handle function(observer);
  py::list objects;
  for (const Argument& argument : *self.arguments) {
    if (argument.kind == Kind::pointer) objects.append(py::handle(find(arguments + kFirst, count - kFirst, argument.path)));
  }
  function(kernel.source().name, py::handle(self.accesses), objects);
}

void launch(const Object& self, PyObject* const* arguments, size_t count) {
  const std::vector<Argument>& plan = *self.arguments;
  GeneratedKernel& kernel = generated_kernel_of(arguments[kKernel]);
  std::array<uint64_t, KernelArguments::kMost / 8> addresses;
  std::array<int64_t, KernelArguments::kMost / 8> numbers;
  size_t pointers = 0, values = 0;
  c10::DeviceIndex device = -1;
  TORCH_INTERNAL_ASSERT(plan.size() + 4 <= addresses.size());
  addresses[0] = 0;  // of a kernel without pointers, which has one
  for (const Argument& argument : plan) {
    PyObject* const object = find(arguments + kFirst, count - kFirst, argument.path);
    if (argument.kind == Kind::pointer) {
      addresses[pointers++] = address_of(object, kernel, device);
    } else {
      numbers[values++] = bits_of(object, argument.kind);
    }
  }
  std::array<int64_t, 3> grid;
  for (size_t axis = 0; axis < 3; ++axis) {
    grid[axis] = integer(arguments[kGrid + axis]);
    TORCH_CHECK_VALUE(grid[axis] >= 0 && grid[axis] <= INT32_MAX, kernel.source().name, ": the grid has ", grid[axis],
                      " programs along axis ", axis, "; from 0 to ", INT32_MAX, " are possible");
    if (grid[axis] == 0) return;
    if (!kernel.is_ttir()) numbers[values++] = grid[axis];
  }
  TORCH_CHECK_VALUE(values == kernel.numbers() && std::max<size_t>(pointers, 1) == kernel.tensors(), kernel.source().name, " takes ",
                    kernel.tensors(), " pointers and ", kernel.numbers(), " numbers, not ", pointers, " and ", values);
  if (device < 0) device = current_device();
  if (C10_UNLIKELY(observer != nullptr)) observe(self, kernel, arguments, count);
  load_generated_kernel(kernel, device);
  if (kernel.is_ttir()) {
    kernel.launch_grid_at(device, addresses.data(), numbers.data(), grid);
  } else {
    kernel.launch_at(device, addresses.data(), numbers.data());
  }
}

void call_hook(PyObject* hook, PyObject* metadata) {
  if (hook == Py_None) return;
  const auto result = py::reinterpret_steal<py::object>(PyObject_CallOneArg(hook, metadata));
  if (!result) throw python_error();
}

PyObject* call(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  TORCH_CHECK_TYPE(names == nullptr && count >= kFirst, "a launcher takes its arguments by position, at least ", size_t{kFirst});
  call_hook(arguments[kEnter], arguments[kMetadata]);
  launch(*reinterpret_cast<Object*>(self), arguments, count);
  call_hook(arguments[kLeave], arguments[kMetadata]);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

void destroy(PyObject* self) {
  delete reinterpret_cast<Object*>(self)->arguments;
  Py_DECREF(reinterpret_cast<Object*>(self)->accesses);
  PyObject_Free(self);
}

PyTypeObject& type() {
  static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Object, call), READONLY, nullptr},
                                  {nullptr, 0, 0, 0, nullptr}};
  static PyTypeObject instance = [] {
    PyTypeObject type{};
    type.tp_name = "TritonLauncher";
    type.tp_basicsize = sizeof(Object);
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    type.tp_vectorcall_offset = offsetof(Object, call);
    type.tp_call = PyVectorcall_Call;
    type.tp_dealloc = destroy;
    type.tp_members = members;
    return type;
  }();
  return instance;
}

}  // namespace
}  // namespace triton_launcher_impl

void add_triton_launcher(py::module_& module) {
  using namespace triton_launcher_impl;
  if (PyType_Ready(&type()) < 0) throw py::error_already_set();
  // plan: of each argument of the kernel its path, and p, i, f or d. accesses: what an observer is called with.
  def_quick(module, "triton_launcher", [](const std::vector<std::pair<std::vector<size_t>, std::string>>& plan, py::object accesses) {
    auto arguments = std::make_unique<std::vector<Argument>>();
    for (const auto& [path, kind] : plan) {
      TORCH_CHECK_VALUE(!path.empty() && kind.size() == 1 && std::string("pifd").find(kind) != std::string::npos, "no argument: ", kind);
      arguments->push_back({path, static_cast<Kind>(kind[0])});
    }
    auto* object = PyObject_New(Object, &type());
    if (object == nullptr) throw py::error_already_set();
    object->call = call;
    object->arguments = arguments.release();
    object->accesses = accesses.release().ptr();
    return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
  });
  def_quick(module, "observe_triton_launches", [](const py::object& function) {
    py::handle(std::exchange(observer, function.is_none() ? nullptr : py::object(function).release().ptr())).dec_ref();
  });
}

}  // namespace backplane::bindings
