// check_driver/checks_lost.cpp: family "lost": a device that is gone, by way of the fault shim over the driver.
//
// What is held here: the caller gets the error from every call, what the driver still holds goes back to it without a complaint, and
// its other devices go on. The third call that names the device loses it.

#include "belongings.h"

namespace backplane::check {
namespace lost_impl {

constexpr char sticky_rule[] = "BP_DEVICE_LOST: sticky: the device is gone; it comes back from alloc, launches, waits and queries";
constexpr char release_rule[] = "Works after a FAULT, BP_OK after DEVICE_LOST";

// Leaves device 0 lost, with one of everything.
Belongings lose(Context& c) {
  c.load_with_fault("fault.lost=@3,fault.device=0");
  c.open();
  if (c.devices() == 0) throw NotOffered{"no device"};
  const Belongings own(c);
  c.free(0, c.alloc(0, 4096));
  uint64_t address = 0x77;
  c.expect(CALL(c, alloc, 0, 4096, 0u, &address), BP_DEVICE_LOST, sticky_rule);
  c.require(address == 0x77, rules::errors, "alloc failed and yet set *out");
  c.require(!c.last_error().empty(), rules::errors, "alloc gave BP_DEVICE_LOST and last_error gives an empty text");
  return own;
}

void sticky(Context& c) {
  const Belongings own = lose(c);
  for (int again = 0; again < 2; ++again) {
    own.refused(own.stream, BP_DEVICE_LOST, sticky_rule);
    if (!own.event) continue;
    c.expect(CALL(c, event_query, 0, own.event), BP_DEVICE_LOST, sticky_rule);
    c.expect(CALL(c, event_synchronize, 0, own.event, BP_NO_TIMEOUT), BP_DEVICE_LOST, sticky_rule);
  }
  own.give_back(release_rule);
  c.close();
}

void release(Context& c) {
  lose(c).give_back(release_rule);
  c.close();
}

void isolated(Context& c) {
  const Belongings own = lose(c);
  if (c.devices() < 2) throw NotOffered{"fewer than two devices"};
  c.smoke(1, "FAULT and DEVICE_LOST are sticky for that device");
  own.give_back(release_rule);
  c.close();
}

}  // namespace lost_impl

Checks lost_checks() {
  using namespace lost_impl;
  return {
      {"lost.sticky", "every call reports it", starts_unloaded, sticky},
      {"lost.release", "free, destroy and close are BP_OK", starts_unloaded, release},
      {"lost.isolated", "another device is not affected", starts_unloaded, isolated},
  };
}

}  // namespace backplane::check
