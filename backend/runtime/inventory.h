// runtime/inventory.h: which of the driver's devices this process sees.
#pragma once

#include <backplane/driver.h>

#include <cstdint>
#include <string>
#include <vector>

namespace backplane {

struct VisibleDevice {
  int32_t driver_index;
  bp_device_properties properties;
};

// The driver's devices under <PREFIX>_VISIBLE_DEVICES, in its order. Creates no context in this process: a driver that cannot count without
// one (BP_DRIVER_COUNT_FORKS) is asked in a child. Throws c10::Error if the driver answers with an error.
std::vector<VisibleDevice> visible_devices(const bp_driver& table);

// As CUDA_VISIBLE_DEVICES: comma separated indices or uuids (any unique prefix, "<device>-" or "GPU-" before it allowed); the list ends at
// the first entry that names no device ("-1" hides all); an entry given twice hides all. Returns positions in `all`.
std::vector<size_t> parse_visible(const std::string& text, const std::vector<VisibleDevice>& all);

// "8a4c…-…", 36 characters.
std::string uuid_text(const bp_device_properties& properties);

}  // namespace backplane
