// check_driver/checks_peer.cpp: family "peer": direct access between devices.
#include <string.h>

#include <algorithm>

#include "context.h"

namespace backplane::check {
namespace peer_impl {

int32_t can_access(Context& c, const bp_peer& peer, int32_t device, int32_t other) {
  const char* rule = "*out = 1 if work on `device` can read and write memory of `peer`";
  int32_t can = 77;
  c.expect(CALL_GROUP(peer, can_access, device, other, &can), BP_OK, rule);
  c.require(can == 0 || can == 1, rule, "%s gave BP_OK and %d", traced_call(), can);
  return can;
}

void access(Context& c) {
  const char* switch_rule = "Enables access, until close; repeating is a no-op. errors: UNSUPPORTED if can_access returns 0";
  const bp_peer peer = *c.group<bp_peer>();
  for (int32_t d = 0; d < c.devices(); ++d) {
    for (int32_t other = 0; other < c.devices(); ++other) {
      if (d == other) continue;
      const bool can = can_access(c, peer, d, other) == 1;
      for (int again = 0; again < 2; ++again) c.expect(CALL_GROUP(peer, enable, d, other), can ? BP_OK : BP_UNSUPPORTED, switch_rule);
      if (!can) continue;
      c.require(can_access(c, peer, d, other) == 1, switch_rule, "can_access changed when access was switched");
    }
  }
}

void invalid(Context& c) {
  const bp_peer peer = *c.group<bp_peer>();
  for (int32_t bad : {c.devices(), -1}) {
    int32_t can = 77;
    c.expect(CALL_GROUP(peer, can_access, bad, 0, &can), BP_INVALID_DEVICE, rules::no_such_device);
    c.expect(CALL_GROUP(peer, can_access, 0, bad, &can), BP_INVALID_DEVICE, rules::no_such_device);
    c.require(can == 77, rules::errors, "%s failed and yet set *out", traced_call());
  }
}

// Where access is on, copies between the two devices' memory work on either side's stream.
void copies(Context& c) {
  const char* rule = "work on `device` can read and write memory of `peer`";
  const bp_peer peer = *c.group<bp_peer>();
  if (!can_access(c, peer, 0, 1)) throw NotOffered{"devices 0 and 1 have no access to each other"};
  c.expect(CALL_GROUP(peer, enable, 0, 1), BP_OK, rule);
  const uint64_t bytes = std::min(c.some_bytes(0), c.some_bytes(1)) / c.unit(0) / c.unit(1) * c.unit(0) * c.unit(1);
  const uint64_t own = c.alloc(0, bytes), others = c.alloc(1, bytes);
  uint8_t *sent = c.pinned(bytes), *back = c.pinned(bytes);
  bp_stream* stream = c.stream(0);
  HostBuffer want(bytes);
  for (uint32_t round = 0; round < 10; ++round) {
    want.fill_pattern(round);
    memcpy(sent, want.data(), bytes);
    c.expect(CALL(c, copy_async, 0, stream, own, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rule);
    c.expect(CALL(c, copy_async, 0, stream, others, 1, own, 0, bytes, 0u), BP_OK, rule);
    c.synchronize(0, stream);
    c.holds(1, others, want.data(), bytes, rule, "what device 0 wrote to memory of device 1");
    memset(want.data(), static_cast<int>(round + 100), bytes);
    c.upload(1, others, want.data(), bytes);
    c.expect(CALL(c, copy_async, 0, stream, own, 0, others, 1, bytes, 0u), BP_OK, rule);
    c.expect(CALL(c, copy_async, 0, stream, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, own, 0, bytes, 0u), BP_OK, rule);
    c.synchronize(0, stream);
    c.same(back, want.data(), bytes, rule, "what device 0 read from memory of device 1");
  }
}

}  // namespace peer_impl

Checks peer_checks() {
  using namespace peer_impl;
  return {
      {"peer.access", "access is switched as can_access says", needs_peer | needs_two_devices, access},
      {"peer.invalid", "a wrong index is INVALID_DEVICE", needs_peer, invalid},
      {"peer.copies", "copies in both directions", needs_peer | needs_two_devices | needs_streams | needs_pinned, copies},
  };
}

}  // namespace backplane::check
