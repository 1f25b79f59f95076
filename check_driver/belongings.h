// check_driver/belongings.h: one of everything that a driver gives, of a device that fails.
#pragma once

#include "busy_stream.h"

namespace backplane::check {

// Of device 0, as far as the driver has it. The event is recorded on the stream.
struct Belongings {
  explicit Belongings(Context& context) : c(context), bytes(c.some_bytes(0)), memory(c.alloc(0, bytes)) {
    const bp_driver& t = c.table();
    if (t.stream_create) stream = c.stream(0);
    if (t.host_alloc) host = c.pinned(bytes);
    if (!t.event_create) return;
    event = c.event(0);
    c.expect(CALL(c, event_record, 0, stream, event, 0u), BP_OK, "The event completes when all work queued so far on the stream has");
  }

  // What allocates, launches, waits or queries gives the device's sticky status.
  void refused(bp_stream* on, int32_t status, const char* rule) const {
    const bp_driver& t = c.table();
    const auto expect = [&](int32_t got) { c.expect(got, status, rule); };
    HostBuffer pageable(bytes);
    const uint64_t half = bytes / 2 / c.unit(0) * c.unit(0);
    const uint8_t pattern = 1;
    uint64_t address = 0x77;
    expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT));
    expect(CALL(c, alloc, 0, 4096, 0u, &address));
    c.require(address == 0x77, rules::errors, "alloc failed and yet set *out");
    expect(CALL(c, copy, 0, nullptr, memory, 0, pageable.address(), BP_HOST_DEVICE, bytes, 0u));
    if (t.fill) expect(CALL(c, fill, 0, on, memory, &pattern, 1u, bytes, 0u));
    if (const auto exec = c.group<bp_host_exec>()) expect(CALL_GROUP(*exec, enqueue, 0, on, Calls::run, nullptr, nullptr));
    if (!t.copy_async) return;
    expect(CALL(c, copy_async, 0, on, memory + half, 0, memory, 0, half, 0u));
    expect(CALL(c, stream_query, 0, on));
    expect(CALL(c, stream_synchronize, 0, on, BP_NO_TIMEOUT));
  }

  void give_back(const char* rule) const {
    c.expect(CALL(c, free, 0, memory), BP_OK, rule);
    if (event) c.expect(CALL(c, event_destroy, 0, event), BP_OK, rule);
    if (stream) c.expect(CALL(c, stream_destroy, 0, stream), BP_OK, rule);
    if (host) c.expect(CALL(c, host_free, host), BP_OK, rule);
  }

  Context& c;
  const uint64_t bytes, memory;
  bp_stream* stream = nullptr;
  bp_event* event = nullptr;
  uint8_t* host = nullptr;
};

}  // namespace backplane::check
