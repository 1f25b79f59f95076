// runtime/count_in_child.h: asks for the devices in a child process, so that a context which counting creates dies with it.
#pragma once

#include <functional>
#include <vector>

#include "runtime/visible_devices.h"

namespace backplane {

// What `ask` returns in a child. Throws c10::Error with what it threw there, or with how the child ended instead; after 60 seconds, or
// <PREFIX>_WATCHDOG_SECONDS if that is less, the child is killed. Signals that reach this process meanwhile disturb nothing.
std::vector<VisibleDevice> count_in_child(const std::function<std::vector<VisibleDevice>()>& ask);

}  // namespace backplane
