// check_driver/checks_lost.cpp: family "lost": a device that is gone, by way of the fault shim over the driver.
//
// What is held here: the caller gets the error from every call, what the driver still holds goes back to it without a complaint, and
// its other devices go on. The third call that names the device loses it.

#include "context.h"

namespace backplane::check {
namespace lost_impl {

constexpr char sticky_rule[] = "BP_DEVICE_LOST: sticky: the device is gone; it comes back from alloc, launches, waits and queries";
constexpr char release_rule[] = "Works after a FAULT, BP_OK after DEVICE_LOST";

struct Belongings {
  uint64_t memory = 0;
  bp_stream* stream = nullptr;
  bp_event* event = nullptr;
  void* host = nullptr;
};

// Leaves device 0 lost, with one of everything.
Belongings lose(Context& c) {
  c.load_with_fault("fault.lost=@3,fault.device=0");
  c.open();
  if (c.devices() == 0) throw NotOffered{"no device"};
  Belongings own;
  own.memory = c.alloc(0, 4096);
  own.stream = c.stream(0);
  own.event = c.event(0);
  c.expect(CALL(c, event_record, 0, own.stream, own.event, 0u), BP_OK, rules::ok);
  own.host = c.pinned(4096);
  c.free(0, c.alloc(0, 4096));
  uint64_t address = 0x77;
  c.expect(CALL(c, alloc, 0, 4096, 0u, &address), BP_DEVICE_LOST, sticky_rule);
  c.require(address == 0x77, rules::errors, "alloc failed and yet set *out");
  c.require(!c.last_error().empty(), rules::errors, "alloc gave BP_DEVICE_LOST and last_error gives an empty text");
  return own;
}

void give_back(Context& c, const Belongings& own) {
  c.expect(CALL(c, free, 0, own.memory), BP_OK, "Works after a FAULT, and is BP_OK after DEVICE_LOST");
  c.expect(CALL(c, event_destroy, 0, own.event), BP_OK, release_rule);
  c.expect(CALL(c, stream_destroy, 0, own.stream), BP_OK, release_rule);
  c.expect(CALL(c, host_free, own.host), BP_OK, release_rule);
}

void sticky(Context& c) {
  const Belongings own = lose(c);
  HostBuffer host(4096);
  for (int again = 0; again < 2; ++again) {
    uint64_t address = 0;
    const uint8_t pattern = 1;
    c.expect(CALL(c, alloc, 0, 4096, 0u, &address), BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, copy, 0, nullptr, own.memory, 0, host.address(), BP_HOST_DEVICE, 4096, 0u), BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, copy_async, 0, own.stream, own.memory, 0, reinterpret_cast<uint64_t>(own.host), BP_HOST_DEVICE, 4096, 0u),
             BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, fill, 0, own.stream, own.memory, &pattern, 1u, 4096, 0u), BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT), BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, stream_query, 0, own.stream), BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, stream_synchronize, 0, own.stream, BP_NO_TIMEOUT), BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, event_query, 0, own.event), BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, event_synchronize, 0, own.event, BP_NO_TIMEOUT), BP_DEVICE_LOST, sticky_rule);
  }
  give_back(c, own);
  c.close();
}

void release(Context& c) {
  give_back(c, lose(c));
  c.close();
}

void isolated(Context& c) {
  const Belongings own = lose(c);
  if (c.devices() < 2) throw NotOffered{"fewer than two devices"};
  c.smoke(1, "FAULT and DEVICE_LOST are sticky for that device");
  give_back(c, own);
  c.close();
}

}  // namespace lost_impl

Checks lost_checks() {
  using namespace lost_impl;
  return {
      {"lost.sticky", "every call tells of it", starts_unloaded, sticky},
      {"lost.release", "free, destroy and close are BP_OK", starts_unloaded, release},
      {"lost.isolated", "another device is not affected", starts_unloaded, isolated},
  };
}

}  // namespace backplane::check
