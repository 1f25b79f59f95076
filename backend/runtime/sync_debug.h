// runtime/sync_debug.h: reports calls that make the host wait for the device (torch.<device>.set_sync_debug_mode). One mode for the
// process, as for CUDA; any thread.
//
// Note [Reported waits]: the same as for CUDA: values and copies that the host waits for, a wait for a stream, and operators that run on
// the CPU. A wait for the device or for an event is explicit in the program, and the allocator's own waits belong to no call.
#pragma once

#include <c10/macros/Macros.h>

#include <atomic>

namespace backplane {

enum class SyncDebug : int { off = 0, warn = 1, error = 2 };

namespace detail {
extern std::atomic<SyncDebug> sync_debug;
void report_wait(const char* how);
}  // namespace detail

inline SyncDebug sync_debug_mode() { return detail::sync_debug.load(std::memory_order_relaxed); }

// The caller that enables it also enables the observer of operators (aten/observe_operators.h), whose names the reports contain.
inline void set_sync_debug_mode(SyncDebug mode) { detail::sync_debug.store(mode, std::memory_order_relaxed); }

// Call before the host waits on behalf of a call: warns or throws, once per call of an operator. `how` follows the operator's name.
inline void about_to_wait(const char* how) {
  if (C10_UNLIKELY(sync_debug_mode() != SyncDebug::off)) detail::report_wait(how);
}

}  // namespace backplane
