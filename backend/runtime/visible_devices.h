// runtime/visible_devices.h: which of the driver's devices this process sees.
#pragma once

#include <backplane/driver.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace backplane {

struct VisibleDevice {
  int32_t driver_index;
  bp_device_properties properties;
};

// All of the driver's devices. Creates no context in this process: a driver that cannot count without one (BP_DRIVER_COUNT_FORKS) is asked
// in a child (runtime/count_in_child.h). Throws c10::Error if it returns an error or does not answer.
std::vector<VisibleDevice> all_devices(const bp_driver& table);

// <PREFIX>_VISIBLE_DEVICES as it is now; a variable that is set but empty is a list, and hides all devices.
std::optional<std::string> visible_list();

// The devices that the list names, in its order; all without a list. As CUDA_VISIBLE_DEVICES: comma-separated indices or uuids (any unique
// prefix, optionally after "<device>-" or "GPU-"); the list ends at the first entry that names no device ("-1" hides all); a repeated entry
// hides all.
std::vector<VisibleDevice> visible_devices(const std::vector<VisibleDevice>& all, const std::optional<std::string>& list);

// "8a4c…-…", 36 characters.
std::string uuid_text(const bp_device_properties& properties);

}  // namespace backplane
