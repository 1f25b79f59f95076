// bindings/ipc.cpp: sharing storages and events between processes, for the pickler of torch.multiprocessing. Handles are bytes.
#include "memory/ipc.h"

#include <ATen/core/Tensor.h>

#include "bindings/module.h"
#include "inductor/graph_results.h"
#include "runtime/stream.h"

namespace backplane::bindings {
namespace {

SharedStorage shared_of(const py::tuple& parts) {
  TORCH_CHECK_VALUE(parts.size() == 5, "a shared storage has 5 parts, not ", parts.size());
  return {parts[0].cast<std::string>(), parts[1].cast<uint64_t>(), parts[2].cast<uint64_t>(), parts[3].cast<std::string>(),
          parts[4].cast<std::string>()};
}

// Storages are passed as tensors of bytes over them, which pybind11 can convert.
py::tuple share(const at::Tensor& bytes) {
  SharedStorage shared;
  {
    const py::gil_scoped_release no_gil;
    own_memory(bytes);
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

constexpr Capsules<Event> kEvents{"backplane.Event"};

}  // namespace

void bind_ipc(py::module_& module) {
  def_quick(module, "share", share);
  def_quick(module, "open", open);
  def_quick(module, "release", release);
  def_blocking(module, "collect", [] { ipc_collect(); });

  def_quick(module, "make_shared_event", [] { return kEvents.hold(new Event(make_shared_event())); });
  def_quick(module, "open_shared_event", [](int64_t device, const std::string& handle) {
    return kEvents.hold(new Event(open_shared_event(device_index(device), handle)));
  });
  def_quick(module, "export_event", [](const py::capsule& event, int64_t device) {
    return py::bytes(export_event(kEvents.get(event), resolve_device(device_index(device))));
  });
  def_quick(module, "event_device", [](const py::capsule& event) { return static_cast<int>(kEvents.get(event).device()); });
  def_quick(module, "record_event", [](const py::capsule& event, int64_t id, int64_t device) {
    kEvents.use(event, [&](Event& e) { e.record(stream_of(id, device)); });
  });
  def_quick(module, "wait_event", [](const py::capsule& event, int64_t id, int64_t device) {
    kEvents.use(event, [&](Event& e) { e.block(stream_of(id, device)); });
  });
  def_quick(module, "query_event", [](const py::capsule& event) { return kEvents.use(event, [](Event& e) { return e.query(); }); });
  def_quick(module, "synchronize_event", [](const py::capsule& event) { kEvents.use(event, [](Event& e) { e.synchronize(); }); });
}

}  // namespace backplane::bindings
