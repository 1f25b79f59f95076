// runtime/options.h: every environment variable that the core reads, under the device's prefix.
#pragma once

#include <optional>
#include <string>

namespace backplane {

// <PREFIX>_<name>, e.g. env("OPTIONS") reads MYDEVICE_OPTIONS. An empty variable counts as unset; in a setuid process all are unset.
std::optional<std::string> env(const char* name);

// <PREFIX>_LAUNCH_BLOCKING=1: every launch waits, so that a fault is raised where the work was queued. Read once.
bool launch_blocking();

const char* device_name();  // "mydevice"

}  // namespace backplane
