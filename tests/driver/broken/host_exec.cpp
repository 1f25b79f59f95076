// tests/driver/broken/host_exec.cpp: defects of the family host_exec.
#include "shim.h"

namespace broken {

void add_host_exec_defects(Defects& d) {
  d["host_exec.order"] = [](Shim& s) {
    // Functions run when somebody waits.
    s.host_exec.enqueue = [](void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
      of(self).held.push_back({static_cast<uint64_t>(device), reinterpret_cast<uint64_t>(stream), reinterpret_cast<uint64_t>(fn),
                               reinterpret_cast<uint64_t>(arg), reinterpret_cast<uint64_t>(destroy)});
      return ok;
    };
    s.table.stream_synchronize = [](void* self, int32_t device, bp_stream* stream, uint64_t timeout) {
      INNER(of(self), stream_synchronize, device, stream, timeout);
      for (const std::vector<uint64_t>& h : of(self).held) {
        INNER_GROUP(of(self).in_host_exec, enqueue, static_cast<int32_t>(h[0]), reinterpret_cast<bp_stream*>(h[1]),
                    reinterpret_cast<int32_t (*)(void*)>(h[2]), reinterpret_cast<void*>(h[3]), reinterpret_cast<void (*)(void*)>(h[4]));
      }
      of(self).held.clear();
      return INNER(of(self), stream_synchronize, device, stream, timeout);
    };
  };
  // The third function and those after it run on another stream.
  d["host_exec.pending"] = instead<&bp_host_exec::enqueue,
                                   [](Shim& s, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
                                     if (2 < ++s.calls) stream = side_stream(s);
                                     return INNER_GROUP(s.in_host_exec, enqueue, device, stream, fn, arg, destroy);
                                   }>;
  d["host_exec.destroy"] = instead<&bp_host_exec::enqueue,
                                   [](Shim& s, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
                                     int32_t count = 0;
                                     INNER(s, device_count, &count);
                                     if (device >= count) return int32_t{BP_INVALID_DEVICE};  // and forgets destroy
                                     return INNER_GROUP(s.in_host_exec, enqueue, device, stream, fn, arg, destroy);
                                   }>;
  d["host_exec.map"] = instead<&bp_host_exec::map, [](Shim& s, int32_t device, uint64_t address, void** out) {
    if (INNER_GROUP(s.in_host_exec, map, device, address, out) != BP_OK) *out = reinterpret_cast<void*>(address);
    return ok;
  }>;
}

}  // namespace broken
