// runtime/wait.h: waits that a Ctrl-C can end: the driver waits in slices, and between slices the binding looks for signals.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>

namespace backplane {

// Set by the Python binding: takes the GIL and throws if a signal handler raised. C++ programs leave it NULL.
void set_interrupt_check(void (*check)());

// `check` throws where a wait is over, or never will be, and what was waited for is void although the device is well: a collective that
// failed. It is asked between the slices of every wait, and by check_waited(). Stays for the process; called without the GIL, on any
// thread.
void set_wait_check(void (*check)());

// For whoever has waited for the device on a user's behalf.
void check_waited();

// Throws what the end of a wait, a status other than BP_OK, means: as throw_status, and BP_TIMEOUT is the watchdog's.
[[noreturn]] void throw_waited(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text);

// Calls wait(timeout_ns) until it returns something other than BP_TIMEOUT; returns that status, or BP_TIMEOUT when the watchdog
// (runtime/watchdog.h) has waited long enough. Throws what the two checks throw; the
// device's work goes on then. Call without the GIL.
int32_t interruptible_wait(const std::function<int32_t(uint64_t timeout_ns)>& wait);

}  // namespace backplane
