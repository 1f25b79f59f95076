// check_driver/checks_copy.cpp: family "copy": copy and copy_async.
#include <string.h>

#include <algorithm>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace copy_impl {

int32_t device_to_device(Context& c, bp_stream* stream, uint64_t to, int32_t to_device, uint64_t from, int32_t from_device,
                         uint64_t bytes) {
  return CALL(c, copy, from_device, stream, to, to_device, from, from_device, bytes, 0u);
}

// Up, across and down, from one byte (or unit) to some MiB, on every device.
void kinds(Context& c) {
  for (int32_t d = 0; d < c.devices(); ++d) {
    const uint64_t unit = c.unit(d);
    const uint64_t largest = c.at_most(d, 4 << 20);
    HostBuffer sent(largest);
    sent.fill_pattern(static_cast<uint32_t>(d) + 1);
    const uint64_t a = c.alloc(d, largest), b = c.alloc(d, largest);
    for (uint64_t bytes : {unit, 4096 / unit * unit, largest}) {
      if (!bytes || bytes > largest) continue;
      c.upload(d, a, sent.data(), bytes);
      c.expect(device_to_device(c, nullptr, b, d, a, d, bytes), BP_OK, rules::copy);
      c.holds(d, b, sent.data(), bytes, rules::copy, format("device %d, %llu bytes up, across and down", d, wide(bytes)).c_str());
    }
    c.free(d, a);
    c.free(d, b);
  }
}

// Every combination of small offsets and odd sizes: the bytes arrive, and no other byte changes.
void odd(Context& c) {
  const char* rule = "arithmetic on it is valid inside the allocation";
  const uint64_t unit = c.unit(0);
  constexpr uint64_t counts[] = {1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33, 63, 65, 127, 129, 255, 257, 1021};
  const uint64_t room = 1100 * unit;
  HostBuffer sent(room), background(room, 0xcd), want(room), untouched(room);
  sent.fill_pattern(5);
  const uint64_t a = c.alloc(0, room), b = c.alloc(0, room);
  for (uint64_t count : counts) {
    for (uint64_t offset : {0, 1, 3, 64}) {
      const uint64_t at = offset * unit, bytes = count * unit;
      memcpy(want.data(), background.data(), room);
      memcpy(want.data() + at, sent.data() + unit, bytes);
      c.upload(0, a, background.data(), room);
      c.upload(0, b, background.data(), room);
      c.upload(0, a + at, sent.data() + unit, bytes);
      c.expect(device_to_device(c, nullptr, b + at, 0, a + at, 0, bytes), BP_OK, rules::copy);
      const std::string what = format("%llu bytes at offset %llu", wide(bytes), wide(at));
      c.holds(0, b, want.data(), room, rule, ("device memory after " + what).c_str());
      memcpy(untouched.data(), background.data(), room);
      c.download(0, a + at, untouched.data() + at, bytes);
      c.same(untouched.data(), want.data(), room, rule, ("host memory after reading " + what).c_str());
    }
  }
  c.free(0, a);
  c.free(0, b);
}

void zero(Context& c) {
  const char* rule = "0 bytes is allowed, also one past the end of an allocation";
  HostBuffer host(4096, 1);
  const uint64_t a = c.alloc(0, 4096), none = c.alloc(0, 0), end = a + 4096;
  for (uint64_t at : {a, end}) {
    c.expect(CALL(c, copy, 0, nullptr, at, 0, host.address() + 4096, BP_HOST_DEVICE, 0u, 0u), BP_OK, rule);
    c.expect(CALL(c, copy, 0, nullptr, host.address() + 4096, BP_HOST_DEVICE, at, 0, 0u, 0u), BP_OK, rule);
    c.expect(CALL(c, copy, 0, nullptr, end, 0, at, 0, 0u, 0u), BP_OK, rule);
  }
  c.expect(CALL(c, copy, 0, nullptr, a, 0, host.address(), BP_HOST_DEVICE, 0u, 0u), BP_OK, rule);
  c.expect(CALL(c, copy, 0, nullptr, host.address(), BP_HOST_DEVICE, a, 0, 0u, 0u), BP_OK, rule);
  c.expect(CALL(c, copy, 0, nullptr, none, 0, a, 0, 0u, 0u), BP_OK, rule);
  if (c.table().copy_async) {
    c.expect(CALL(c, copy_async, 0, nullptr, none, 0, a, 0, 0u, 0u), BP_OK, rule);
    c.synchronize(0);
  }
  c.free(0, a);
  c.free(0, none);
}

// The source may change, and the destination may be read, as soon as copy has returned.
void arrived(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  HostBuffer sent(bytes), want(bytes);
  const uint64_t a = c.alloc(0, bytes);
  for (uint32_t round = 0; round < 50; ++round) {
    sent.fill_pattern(round);
    want.fill_pattern(round);
    c.upload(0, a, sent.data(), bytes);
    memset(sent.data(), 0xee, bytes);
    c.holds(0, a, want.data(), bytes, rules::copy, "host memory right after copy returned");
  }
  c.free(0, a);
}

// A copy behind pending work of its stream sees what that work wrote.
void ordered(Context& c) {
  const char* rule = "order: after all work queued on the stream";
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* stream = c.stream(0);
  HostBuffer old_bytes(bytes, 1), want(bytes, 2);
  uint8_t* sent = c.pinned(bytes, 2);
  const uint64_t a = c.alloc(0, bytes);
  c.upload(0, a, old_bytes.data(), bytes);
  BusyStream hold(c, 0, stream);
  c.expect(CALL(c, copy_async, 0, stream, a, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::copy_async);
  hold.release_later();
  c.holds(0, a, want.data(), bytes, rule, "copy behind a pending copy_async", stream);
}

void async(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* stream = c.stream(0);
  uint8_t *sent = c.pinned(bytes), *back = c.pinned(bytes);
  HostBuffer want(bytes);
  const uint64_t a = c.alloc(0, bytes), b = c.alloc(0, bytes);
  for (bp_stream* s : {stream, static_cast<bp_stream*>(nullptr)}) {
    want.fill_pattern(s ? 3 : 4);
    memcpy(sent, want.data(), bytes);
    memset(back, 0, bytes);
    c.expect(CALL(c, copy_async, 0, s, a, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::copy_async);
    c.expect(CALL(c, copy_async, 0, s, b, 0, a, 0, bytes, 0u), BP_OK, rules::copy_async);
    c.expect(CALL(c, copy_async, 0, s, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, b, 0, bytes, 0u), BP_OK, rules::copy_async);
    c.synchronize(0, s);
    c.same(back, want.data(), bytes, rules::copy_async,
           s ? "up, across and down on a stream" : "up, across and down on the default stream");
  }
}

void returns_at_once(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* stream = c.stream(0);
  uint8_t* host = c.pinned(bytes);
  const uint64_t a = c.alloc(0, bytes), b = c.alloc(0, bytes);
  BusyStream hold(c, 0, stream);
  c.expect(CALL(c, copy_async, 0, stream, a, 0, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::copy_async);
  hold.not_waited_for(rules::copy_async);
  c.expect(CALL(c, copy_async, 0, stream, b, 0, a, 0, bytes, 0u), BP_OK, rules::copy_async);
  hold.not_waited_for(rules::copy_async);
  c.expect(CALL(c, copy_async, 0, stream, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, b, 0, bytes, 0u), BP_OK, rules::copy_async);
  hold.not_waited_for(rules::copy_async);
}

// From each device to each other one, from either side's stream.
void devices(Context& c) {
  const char* rule = "errors: UNSUPPORTED for a pair of devices that it does not support (the core copies through the host)";
  int done = 0;
  for (int32_t from = 0; from < c.devices(); ++from) {
    for (int32_t to = 0; to < c.devices(); ++to) {
      if (from == to) continue;
      const uint64_t bytes = std::min(c.some_bytes(from), c.some_bytes(to)) / c.unit(from) / c.unit(to) * c.unit(from) * c.unit(to);
      HostBuffer sent(bytes);
      const uint64_t a = c.alloc(from, bytes), b = c.alloc(to, bytes);
      for (int32_t on : {from, to}) {
        sent.fill_pattern(static_cast<uint32_t>(10 * from + to + on));
        c.upload(from, a, sent.data(), bytes);
        const int32_t status = CALL(c, copy, on, nullptr, b, to, a, from, bytes, 0u);
        if (status == BP_UNSUPPORTED) continue;
        c.expect(status, BP_OK, rule);
        ++done;
        c.holds(to, b, sent.data(), bytes, rules::copy,
                format("from device %d to device %d on a stream of device %d", from, to, on).c_str());
      }
      c.free(from, a);
      c.free(to, b);
    }
  }
  if (!done) throw NotOffered{"every pair of devices is UNSUPPORTED"};
}

}  // namespace copy_impl

Checks copy_checks() {
  using namespace copy_impl;
  return {
      {"copy.kinds", "up, across and down, small and large", needs_nothing, kinds},
      {"copy.odd", "odd sizes and offsets change no other byte", needs_nothing, odd},
      {"copy.zero", "0 bytes may be copied, at the end, too", needs_nothing, zero},
      {"copy.arrived", "copy returns when the bytes have arrived", needs_nothing, arrived},
      {"copy.ordered", "copy comes after the stream's pending work", needs_streams | needs_pinned, ordered},
      {"copy.async", "copy_async in every direction", needs_streams | needs_pinned, async},
      {"copy.returns_at_once", "copy_async does not wait for the stream", needs_streams | needs_pinned, returns_at_once},
      {"copy.devices", "from each device to each other one", needs_two_devices, devices},
  };
}

}  // namespace backplane::check
