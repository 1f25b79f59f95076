// runtime/peer.h: direct access between devices, enabled at first use and never disabled.
#pragma once

#include <c10/core/Device.h>

namespace backplane {

// Whether work on `device` can read and write memory of `peer`: queries the driver (bp.peer), opens nothing. A device is not its own peer.
bool can_access_peer(c10::DeviceIndex device, c10::DeviceIndex peer);

// Enables the access and returns true; false where the driver does not support it. Any thread; calls the driver the first time only.
bool enable_peer_access(c10::DeviceIndex device, c10::DeviceIndex peer);

}  // namespace backplane
