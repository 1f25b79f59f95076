// runtime/watchdog.h: which operator queued what on each stream, for errors that must name it. Costs nothing unless it is enabled:
// <PREFIX>_LAUNCH_BLOCKING=1 waits for all work where it is queued, and <PREFIX>_WATCHDOG_SECONDS=<s> ends a longer wait with an error that
// names the streams and the work.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <string>

namespace backplane {

// Whether either is enabled. Read once.
bool watching();

// The timeout of a wait; UINT64_MAX without a watchdog. Throws c10::ValueError for a value that is not a number of seconds.
uint64_t watchdog_ns();

// For error messages. The work that this thread waits for because of LAUNCH_BLOCKING, "" if there is none.
std::string awaited_work();
// For the message of an interrupted wait: the kernel that was queued last, and pending_work of every device.
std::string interrupted_work();
// The device's streams with incomplete work, one line each with the latest work; "" if nothing is watched.
std::string pending_work(c10::DeviceIndex device);

}  // namespace backplane
