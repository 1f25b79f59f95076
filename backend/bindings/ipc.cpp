// bindings/ipc.cpp: storages and events between processes, for the pickler of torch.multiprocessing. Handles are bytes.
#include "memory/ipc.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "bindings/module.h"
#include "runtime/stream.h"

namespace backplane::bindings {
namespace {

SharedStorage shared_of(const py::tuple& parts) {
  TORCH_CHECK_VALUE(parts.size() == 5, "a shared storage has 5 parts, not ", parts.size());
  return {parts[0].cast<std::string>(), parts[1].cast<uint64_t>(), parts[2].cast<uint64_t>(), parts[3].cast<std::string>(),
          parts[4].cast<std::string>()};
}

// Storages pass as tensors of bytes over them, which pybind knows.
py::tuple share(const at::Tensor& bytes) {
  SharedStorage shared;
  {
    const py::gil_scoped_release no_gil;
    shared = share_storage(bytes.storage());
  }
  return py::make_tuple(py::bytes(shared.memory), shared.offset, shared.bytes, py::bytes(shared.event), py::bytes(shared.counter));
}

at::Tensor open(int64_t device, const py::tuple& parts) {
  const SharedStorage shared = shared_of(parts);
  const py::gil_scoped_release no_gil;
  c10::Storage storage = open_shared_storage(device_index(device), shared);
  return at::detail::make_tensor<at::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                 caffe2::TypeMeta::Make<uint8_t>());
}

void release(const py::tuple& parts) { release_shared_storage(shared_of(parts)); }

}  // namespace

void bind_ipc(py::module_& module) {
  def_quick(module, "ipc_share", share);
  def_quick(module, "ipc_open", open);
  def_quick(module, "ipc_release", release);
  def_blocking(module, "ipc_collect", [] { ipc_collect(); });

  py::class_<Event>(module, "SharedEvent")
      .def(py::init(torch::wrap_pybind_function(+[] { return make_shared_event(); })))
      .def("record", torch::wrap_pybind_function_no_gil(+[](Event& e, int64_t id, int64_t device) { e.record(stream_of(id, device)); }))
      .def("wait", torch::wrap_pybind_function_no_gil(+[](Event& e, int64_t id, int64_t device) { e.block(stream_of(id, device)); }))
      .def("query", torch::wrap_pybind_function_no_gil(+[](Event& e) { return e.query(); }))
      .def("synchronize", torch::wrap_pybind_function_no_gil(+[](Event& e) { e.synchronize(); }))
      .def("device", [](Event& e) { return static_cast<int>(e.device()); })
      .def("export_handle", torch::wrap_pybind_function(
                                [](Event& e, int64_t device) { return py::bytes(export_event(e, resolve_device(device_index(device)))); }))
      .def_static("open_handle", torch::wrap_pybind_function(+[](int64_t device, const std::string& handle) {
                    return open_shared_event(device_index(device), handle);
                  }));
}

}  // namespace backplane::bindings
