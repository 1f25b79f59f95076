// tests/driver/broken/ipc.cpp: defects of the family ipc.
#include "shim.h"

namespace broken {

void add_ipc_defects(Defects& d) {
  // New memory, not the other process's.
  d["ipc.memory"] = [](Shim& s) {
    s.ipc.memory_open = [](void* self, int32_t device, const bp_ipc_handle*, uint64_t* out) {
      return INNER(of(self), alloc, device, 65536, 0u, out);
    };
    s.ipc.memory_close = [](void* self, int32_t device, uint64_t address) { return INNER(of(self), free, device, address); };
  };
  // Clears what it gives up.
  d["ipc.close"] = instead<&bp_ipc::memory_close, [](Shim& s, int32_t device, uint64_t address) {
    const uint64_t zero = 0;
    INNER(s, fill, device, nullptr, address, &zero, 8u, 16u, 0u);
    INNER(s, synchronize, device, BP_NO_TIMEOUT);
    return INNER_GROUP(s.in_ipc, memory_close, device, address);
  }>;
  // An event that nobody records.
  d["ipc.events"] = instead<&bp_ipc::event_open, [](Shim& s, int32_t device, const bp_ipc_handle*, bp_event** out) {
    return INNER(s, event_create, device, 0u, out);
  }>;
  // Takes any bytes for a handle.
  d["ipc.invalid"] = after<&bp_ipc::memory_open, [](Shim& s, int32_t status, int32_t device, const bp_ipc_handle* handle, uint64_t* out) {
    return status == BP_INVALID_ARGUMENT ? (*out = 0x1000, int32_t{BP_OK}) : status;
  }>;
}

}  // namespace broken
