// tests/driver/broken/kinds.cpp: sound devices of other kinds than the simulated one: a card, a fast one, a slow one, a runtime with a
// pool.
#include <string.h>
#include <unistd.h>

#include "shim.h"

namespace broken {
namespace {

constexpr uint64_t large = 1 << 20;  // what the checker keeps a stream busy with

// Runs no host functions, as no card does.
int32_t without_host_exec(void* self, const char* id, uint32_t version, const bp_ext** out) {
  if (!strcmp(id, BP_HOST_EXEC_ID)) return BP_UNSUPPORTED;
  return INNER(of(self), query_ext, id, version, out);
}

// Nor has callbacks of streams.
void without_callbacks(Shim& s) {
  s.table.query_ext = without_host_exec;
  s.table.stream_callback = nullptr;
}

}  // namespace

void add_kinds(Defects& d) {
  d["card"] = [](Shim& s) { s.table.query_ext = without_host_exec; };
  d["quiet_card"] = without_callbacks;
  // Streams without events: emulate then supplies streams, too.
  d["no_events"] = [](Shim& s) {
    for (const auto& slot : backplane::driver::slots()) {
      if (slot.group == backplane::driver::Group::events) memset(reinterpret_cast<char*>(&s.table) + slot.offset, 0, sizeof(void*));
    }
  };
  d["one_call"] = [](Shim& s) { s.table.flags |= BP_DRIVER_SERIALIZE; };
  // Large copies take no time at all.
  d["fast_card"] = [](Shim& s) {
    s.table.query_ext = without_host_exec;
    s.table.copy_async = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
      if (bytes >= large) return int32_t{BP_OK};
      return INNER(of(self), copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  // They take 30 ms each.
  d["slow_card"] = [](Shim& s) {
    s.table.query_ext = without_host_exec;
    s.table.copy_async = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
      if (bytes < large) return INNER(of(self), copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
      return INNER_GROUP(of(self).in_host_exec, enqueue, device, stream, sleep_for_a_while, nullptr, nullptr);
    };
  };
  // A record waits for the work that it records.
  d["waiting_record"] = instead<&bp_driver::event_record, [](Shim& s, int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    INNER(s, stream_synchronize, device, stream, BP_NO_TIMEOUT);
    return INNER(s, event_record, device, stream, event, flags);
  }>;
  // The first open of the process starts threads that stay.
  d["pool"] = instead<&bp_driver::open, [](Shim& s) {
    static const bool started = [] {
      for (int i = 0; i < 3; ++i) std::thread([] { pause(); }).detach();
      return true;
    }();
    (void)started;
    return INNER(s, open);
  }>;
}

}  // namespace broken
