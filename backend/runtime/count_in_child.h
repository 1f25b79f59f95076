// runtime/count_in_child.h: asks for the devices in a child process, so that a context which counting creates ends with it.
#pragma once

#include <functional>
#include <vector>

#include "runtime/visible_devices.h"

namespace backplane {

// Returns what `ask` returns in a child. Throws c10::Error with the text of what `ask` threw there, or with how the child ended. After 60
// seconds, or <PREFIX>_WATCHDOG_SECONDS if that is less, the child is killed. Signals that this process receives meanwhile do not interrupt
// the call.
std::vector<VisibleDevice> count_in_child(const std::function<std::vector<VisibleDevice>()>& ask);

}  // namespace backplane
