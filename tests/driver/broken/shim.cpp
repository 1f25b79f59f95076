// tests/driver/broken/shim.cpp: forwards the whole table, then applies the defect.
#include "shim.h"

#include <string.h>

#include <memory>

namespace broken {
namespace {

template <auto Slot>
struct Forward;

template <class... Args, int32_t (*bp_driver::*Slot)(void*, Args...)>
struct Forward<Slot> {
  static int32_t call(void* self, Args... args) { return (of(self).in.*Slot)(of(self).in.self, args...); }
};

int32_t close(void* self) {
  std::unique_ptr<Shim> shim(&of(self));
  return INNER(*shim, close);
}

int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  Shim& s = of(self);
  const bp_ext* inner = nullptr;
  const int32_t status = INNER(s, query_ext, id, version, &inner);
  if (status != BP_OK) return status;
  if (inner == &s.in_exec->head) {
    *out = &s.exec.head;
  } else if (s.in_view && inner == &s.in_view->head) {
    *out = &s.view.head;
  } else if (s.in_ipc && inner == &s.in_ipc->head) {
    *out = &s.ipc.head;
  } else {
    *out = inner == &s.in_peer->head ? &s.peer.head : &s.vmm.head;
  }
  return BP_OK;
}

void forward_table(Shim& s) {
  bp_driver& t = s.table;
  t = s.in;
  t.self = &s;
#define FORWARD(entry) t.entry = Forward<&bp_driver::entry>::call
  FORWARD(device_count);
  FORWARD(device_properties);
  FORWARD(open);
  FORWARD(alloc);
  FORWARD(free);
  FORWARD(copy);
  FORWARD(synchronize);
  FORWARD(last_error);
  FORWARD(stream_create);
  FORWARD(stream_destroy);
  FORWARD(stream_query);
  FORWARD(stream_synchronize);
  FORWARD(copy_async);
  FORWARD(stream_callback);
  FORWARD(event_create);
  FORWARD(event_destroy);
  FORWARD(event_record);
  FORWARD(event_query);
  FORWARD(event_synchronize);
  FORWARD(stream_wait);
  FORWARD(event_elapsed);
  FORWARD(host_alloc);
  FORWARD(host_free);
  FORWARD(fill);
  FORWARD(memory_info);
  FORWARD(set_current);
  FORWARD(stream_native);
  FORWARD(stream_from_native);
  FORWARD(host_register);
  FORWARD(host_unregister);
  FORWARD(pointer_info);
#undef FORWARD
  t.close = close;
  t.query_ext = query_ext;
}

void forward_groups(Shim& s) {
  const bp_ext* ext = nullptr;
  if (INNER(s, query_ext, BP_HOST_EXEC_ID, BP_HOST_EXEC_VERSION, &ext) == BP_OK) {
    s.in_exec = reinterpret_cast<const bp_host_exec*>(ext);
    s.exec = *s.in_exec;
    s.exec.head.self = &s;
    s.exec.enqueue = [](void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
      return INNER_GROUP(of(self).in_exec, enqueue, device, stream, fn, arg, destroy);
    };
    s.exec.map = [](void* self, int32_t device, uint64_t address, void** out) {
      return INNER_GROUP(of(self).in_exec, map, device, address, out);
    };
  }
  if (INNER(s, query_ext, BP_HOST_VIEW_ID, BP_HOST_VIEW_VERSION, &ext) == BP_OK) {
    s.in_view = reinterpret_cast<const bp_host_view*>(ext);
    s.view = *s.in_view;
    s.view.head.self = &s;
    s.view.map = [](void* self, int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
      return INNER_GROUP(of(self).in_view, map, device, address, bytes, access, out);
    };
    s.view.unmap = [](void* self, int32_t device, uint64_t address, void* ptr) {
      return INNER_GROUP(of(self).in_view, unmap, device, address, ptr);
    };
  }
  if (INNER(s, query_ext, BP_PEER_ID, BP_PEER_VERSION, &ext) == BP_OK) {
    s.in_peer = reinterpret_cast<const bp_peer*>(ext);
    s.peer = *s.in_peer;
    s.peer.head.self = &s;
    s.peer.can_access = [](void* self, int32_t device, int32_t peer, int32_t* out) {
      return INNER_GROUP(of(self).in_peer, can_access, device, peer, out);
    };
    s.peer.enable = [](void* self, int32_t device, int32_t peer) { return INNER_GROUP(of(self).in_peer, enable, device, peer); };
    s.peer.disable = [](void* self, int32_t device, int32_t peer) { return INNER_GROUP(of(self).in_peer, disable, device, peer); };
  }
  if (INNER(s, query_ext, BP_VMM_ID, BP_VMM_VERSION, &ext) == BP_OK) {
    s.in_vmm = reinterpret_cast<const bp_vmm*>(ext);
    s.vmm = *s.in_vmm;
    s.vmm.head.self = &s;
    s.vmm.granularity = [](void* self, int32_t device, uint64_t* out) { return INNER_GROUP(of(self).in_vmm, granularity, device, out); };
    s.vmm.reserve = [](void* self, int32_t device, uint64_t bytes, uint64_t* out) {
      return INNER_GROUP(of(self).in_vmm, reserve, device, bytes, out);
    };
    s.vmm.release = [](void* self, int32_t device, uint64_t address, uint64_t bytes) {
      return INNER_GROUP(of(self).in_vmm, release, device, address, bytes);
    };
    s.vmm.map = [](void* self, int32_t device, uint64_t address, uint64_t bytes) {
      return INNER_GROUP(of(self).in_vmm, map, device, address, bytes);
    };
    s.vmm.unmap = [](void* self, int32_t device, uint64_t address, uint64_t bytes) {
      return INNER_GROUP(of(self).in_vmm, unmap, device, address, bytes);
    };
  }
  if (INNER(s, query_ext, BP_IPC_ID, BP_IPC_VERSION, &ext) == BP_OK) {
    s.in_ipc = reinterpret_cast<const bp_ipc*>(ext);
    s.ipc = *s.in_ipc;
    s.ipc.head.self = &s;
    s.ipc.memory_export = [](void* self, int32_t device, uint64_t address, bp_ipc_handle* out) {
      return INNER_GROUP(of(self).in_ipc, memory_export, device, address, out);
    };
    s.ipc.memory_open = [](void* self, int32_t device, const bp_ipc_handle* handle, uint64_t* out) {
      return INNER_GROUP(of(self).in_ipc, memory_open, device, handle, out);
    };
    s.ipc.memory_close = [](void* self, int32_t device, uint64_t address) {
      return INNER_GROUP(of(self).in_ipc, memory_close, device, address);
    };
    s.ipc.event_export = [](void* self, int32_t device, bp_event* event, bp_ipc_handle* out) {
      return INNER_GROUP(of(self).in_ipc, event_export, device, event, out);
    };
    s.ipc.event_open = [](void* self, int32_t device, const bp_ipc_handle* handle, bp_event** out) {
      return INNER_GROUP(of(self).in_ipc, event_open, device, handle, out);
    };
  }
}

const Defects& defects() {
  static const Defects all = [] {
    Defects d;
    add_load_defects(d);
    add_memory_defects(d);
    add_work_defects(d);
    add_group_defects(d);
    add_vmm_defects(d);
    add_ipc_defects(d);
    add_life_defects(d);
    add_kinds(d);
    d["none"] = [](Shim&) {};
    return d;
  }();
  return all;
}

int32_t get(const bp_host* host, const bp_driver** out) {
  const std::string config = host->config;
  const std::string names = config.starts_with("defect=") ? config.substr(7) : "";
  const size_t plus = names.find('+');
  const std::string name = names.substr(0, plus);
  const auto found = defects().find(name);
  const auto also = defects().find(plus == std::string::npos ? "none" : names.substr(plus + 1));
  if (found == defects().end() || also == defects().end() || !host->inner) {
    host->set_error(host->ctx, host->inner ? "broken.defect= must name a check" : "this is a shim: it needs a driver below");
    return BP_INVALID_ARGUMENT;
  }
  if (host->abi_major != BP_ABI_MAJOR || host->abi_minor != BP_ABI_MINOR) {
    if (name == "load.refusal") return BP_INTERNAL;
    host->set_error(host->ctx, "another ABI");
    return BP_UNSUPPORTED;
  }
  if (name == "load.answer") return BP_UNSUPPORTED;
  static Shim* first = nullptr;
  if (name == "load.instances" && first) {
    *out = &first->table;
    return BP_OK;
  }
  auto* shim = new Shim;
  if (!first) first = shim;
  shim->in = *host->inner;
  forward_table(*shim);
  forward_groups(*shim);
  found->second(*shim);
  also->second(*shim);
  *out = &shim->table;
  return BP_OK;
}

}  // namespace

bp_stream* side_stream(Shim& shim) {
  std::lock_guard lock(shim.mutex);
  if (!shim.side) INNER(shim, stream_create, 0, 0, 0u, &shim.side);
  return shim.side;
}

}  // namespace broken

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) { return broken::get(host, out); }
