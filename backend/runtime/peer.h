// runtime/peer.h: direct access between devices, switched on where it is first of use and never off.
#pragma once

#include <c10/core/Device.h>

namespace backplane {

// Whether work on `device` can read and write memory of `peer`: asks the driver (bp.peer), opens nothing. A device has no peer in itself.
bool can_access_peer(c10::DeviceIndex device, c10::DeviceIndex peer);

// Switches the access on and returns true; false where the driver cannot. Any thread; a driver call at the first time only.
bool enable_peer_access(c10::DeviceIndex device, c10::DeviceIndex peer);

}  // namespace backplane
