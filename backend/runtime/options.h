// runtime/options.h: every environment variable the core reads, under the device's prefix.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace backplane {

// <PREFIX>_<name>, e.g. env("OPTIONS") reads MYDEVICE_OPTIONS. Empty counts as unset, and in a setuid process all are.
std::optional<std::string> env(const char* name);

// "a=1,fault.alloc=17" -> {"": "a=1", "fault": "alloc=17"}: the driver's own options under "", a shim's under its name.
std::map<std::string, std::string> split_options(const std::string& text);

// <PREFIX>_LAUNCH_BLOCKING=1: every launch waits, so that a fault is raised where the work was queued. Read once.
bool launch_blocking();

const char* device_name();  // "mydevice"

}  // namespace backplane
