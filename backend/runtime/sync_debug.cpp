// runtime/sync_debug.cpp: the text of such a report, and the check that a call is reported once.
#include "runtime/sync_debug.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "runtime/activity.h"
#include "runtime/options.h"

namespace backplane {

std::atomic<SyncDebug> detail::sync_debug{SyncDebug::off};

void detail::report_wait(const char* how) {
  thread_local uint64_t reported = 0;
  const auto& running = running_operators();
  std::string text = std::string("called a synchronizing ") + device_name() + " operation: ";
  if (running.empty()) {
    text += how;
  } else {
    if (running.front().serial == reported) return;
    reported = running.front().serial;
    text += running.front().name + " (" + how + ")";
  }
  TORCH_CHECK(sync_debug_mode() != SyncDebug::error, text);
  TORCH_WARN(text);
}

}  // namespace backplane
