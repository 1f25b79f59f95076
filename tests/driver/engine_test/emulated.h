// tests/driver/engine_test/emulated.h: engine_test.cpp: inner drivers of emulate, and cases over them.
#pragma once

#include "support.h"

namespace {

/// The sim without its events: emulate then supplies streams and events, over the sim's host_exec.
const bp_driver* sim_without_events() {
  const bp_driver* sim = get(bp_sim_get, "stream=async,memory=64MiB");
  static Filter filter;
  filter = {normalised(*sim), sim};
  for (const Slot& slot : slots()) {
    if (slot.group == Group::events) std::memset(reinterpret_cast<char*>(&filter.table) + slot.offset, 0, sizeof(void*));
  }
  return get(bp_emulate_get, "", &filter.table);
}

/// The sim as a driver that takes one call at a time, and counts the calls that overlap.
std::atomic<int> calls_inside{0}, overlaps{0};
const bp_driver* serialized_sim() {
  const bp_driver* sim = get(bp_sim_get, "stream=async,memory=64MiB");
  static bp_driver inner;
  static bp_driver table;
  inner = normalised(*sim);
  table = inner;
  table.flags = BP_DRIVER_SERIALIZE;
  struct Count {
    Count() { overlaps += calls_inside++ != 0; }
    ~Count() { --calls_inside; }
  };
  table.event_record = [](void* self, int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    Count count;
    return inner.event_record(self, device, stream, event, flags);
  };
  table.stream_wait = [](void* self, int32_t device, bp_stream* stream, bp_event* event) {
    Count count;
    return inner.stream_wait(self, device, stream, event);
  };
  table.stream_synchronize = [](void* self, int32_t device, bp_stream* stream, uint64_t timeout) {
    Count count;
    CHECK(timeout == 0);
    return inner.stream_synchronize(self, device, stream, timeout);
  };
  return get(bp_emulate_get, "", &table);
}

/// A driver whose copies need whole units of 64 bytes and which cannot copy between its devices.
const bp_driver* awkward_minimal() {
  const bp_driver* minimal = get(bp_minimal_get, "devices=2");
  static bp_driver inner;
  static bp_driver table;
  inner = normalised(*minimal);
  table = inner;
  table.device_properties = [](void* self, int32_t device, bp_device_properties* out) {
    const int32_t status = inner.device_properties(self, device, out);
    if (out->struct_size >= sizeof *out) out->copy_alignment = 64;
    return status;
  };
  table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                  uint64_t bytes, uint32_t flags) -> int32_t {
    if (dst_device != BP_HOST_DEVICE && src_device != BP_HOST_DEVICE) return BP_UNSUPPORTED;
    const uint64_t address = src_device == BP_HOST_DEVICE ? dst : src;
    if (address % 64 != 0 || bytes % 64 != 0) return BP_INVALID_ARGUMENT;
    return inner.copy(self, device, stream, dst, dst_device, src, src_device, bytes, flags);
  };
  return get(bp_emulate_get, "", &table);
}

/// copy_alignment 64: fill must read the units that it writes in part, and a pair of devices goes through the host.
void awkward_driver() {
  Instance i(awkward_minimal());
  const uint64_t a = i.alloc(4096), b = i.alloc(4096, 1);
  i.put(a, std::vector<unsigned char>(4096, 0xaa).data(), 4096);
  const uint32_t pattern = 0x04030201;
  OK(i.d->fill(i.self, 0, nullptr, a + 20, &pattern, 4, 300, 0u));
  OK(i.d->copy_async(i.self, 0, nullptr, b, 1, a, 0, 4096, 0u));
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  const auto seen = i.take(b, 4096, 1);
  for (uint64_t n = 0; n < 4096; ++n) CHECK(seen[n] == (n < 20 || n >= 1220 ? 0xaa : (n - 20) % 4 + 1));
}

}  // namespace
