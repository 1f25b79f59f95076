// runtime/watchdog.h: which operator queued what on each stream, for errors that must name it. Costs nothing unless it is asked for:
// <PREFIX>_LAUNCH_BLOCKING=1 waits for every piece of work where it is queued, and <PREFIX>_WATCHDOG_SECONDS=<s> ends a wait that takes
// longer with an error that names the streams and the work.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <string>

namespace backplane {

// Whether either is asked for. Read once.
bool watching();

// How long a wait may take; UINT64_MAX without a watchdog. Throws c10::ValueError for a value that is no number of seconds.
uint64_t watchdog_ns();

// For the text of an error. The work whose completion this thread waits for because of LAUNCH_BLOCKING, "" if there is none.
std::string work_in_hand();
// For the text of an interrupted wait: the kernel that was queued last, and pending_work of every device.
std::string interrupted_work();
// The device's streams that have not completed, a line each with the work that was queued last; "" if nothing is watched.
std::string pending_work(c10::DeviceIndex device);

}  // namespace backplane
