// runtime/wait.h: waits that a Ctrl-C can interrupt: the driver waits in slices, and between slices the bindings check for signals.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>

namespace backplane {

// Set by the Python bindings: takes the GIL and throws if a signal handler raised. NULL in C++ programs.
void set_interrupt_check(void (*check)());

// `check` throws if a wait has ended, or will never end, and its result is invalid although the device works: a collective that failed. It
// is called between the slices of every wait, and by check_waited(). Registered for the life of the process; called without the GIL, on any
// thread.
void set_wait_check(void (*check)());

// For callers that have waited for the device on behalf of a user.
void check_waited();

// Throws the error of a wait that ended with a status other than BP_OK: as throw_status, and BP_TIMEOUT is the watchdog's.
[[noreturn]] void throw_waited(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text);

// Calls wait(timeout_ns) until it returns something other than BP_TIMEOUT; returns that status, or BP_TIMEOUT when the watchdog's limit
// (runtime/watchdog.h) is reached. Throws what the two checks throw; the device's work continues then. Call without the GIL.
int32_t interruptible_wait(const std::function<int32_t(uint64_t timeout_ns)>& wait);

}  // namespace backplane
