// runtime/sync_debug.h: tells of calls that make the host wait for the device, for programs that look for such calls
// (torch.<device>.set_sync_debug_mode). One mode for the process, as CUDA's; any thread.
//
// Note [Waits that are told]: those that CUDA tells of: values and copies that the host waits for, a wait for a stream, and operators that
// run on the CPU. The program asks for a wait for the device or for an event by name, and the allocator's own waits are no call's.
#pragma once

#include <c10/macros/Macros.h>

#include <atomic>

namespace backplane {

enum class SyncDebug : int { off = 0, warn = 1, error = 2 };

namespace detail {
extern std::atomic<SyncDebug> sync_debug;
void tell_wait(const char* how);
}  // namespace detail

inline SyncDebug sync_debug_mode() { return detail::sync_debug.load(std::memory_order_relaxed); }

// Whoever switches it on also follows the operators (aten/observe_operators.h), which are told by name.
inline void set_sync_debug_mode(SyncDebug mode) { detail::sync_debug.store(mode, std::memory_order_relaxed); }

// Before the host waits on a call's behalf: warns or throws, once in a call of an operator. `how` is said behind the operator's name.
inline void about_to_wait(const char* how) {
  if (C10_UNLIKELY(sync_debug_mode() != SyncDebug::off)) detail::tell_wait(how);
}

}  // namespace backplane
