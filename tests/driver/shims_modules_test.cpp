// tests/driver/shims_modules_test.cpp: bp.compiler and bp.module through the shims emulate and fault.
//
// The inner driver is the simulated device with two other groups: code is a kernel's name, and a kernel a host function.
// The exit status is the number of failures.
#include <string>

#include "report.h"
#include "shims_modules_test/every.h"
#include "shims_modules_test/fault.h"
#include "shims_modules_test/own_streams.h"

int main() {
  struct Stack {
    const char* name;
    Make make;
    const char* config;
  };
  for (const Stack& stack :
       {Stack{"emulate, inline streams", own_streams, "stream=inline"}, Stack{"emulate, async streams", own_streams, "stream=async"},
        Stack{"emulate, async streams, locked", own_streams_locked, "stream=async"}, Stack{"emulate, locked", locked, ""},
        Stack{"emulate, passing", passing, ""}, Stack{"fault", faulty, ""}}) {
    const std::string name = stack.name;
    report(name + ": a failed kernel is sticky", [&] { a_failed_kernel_is_sticky(stack.make, stack.config); });
    report(name + ": compilations are not locked", [&] { compilations_are_not_locked(stack.make); });
    report(name + ": an older compiler stays one", [&] { an_older_compiler_stays_one(stack.make); });
  }
  report("emulate, locked: calls do not overlap", [] { calls_of_a_locked_driver_do_not_overlap(locked); });
  report("emulate, async streams, locked: calls do not overlap", [] { calls_of_a_locked_driver_do_not_overlap(own_streams_locked); });
  for (const char* config : {"stream=inline", "stream=async"}) {
    const std::string name = std::string("emulate, ") + config;
    report(name + ": wrong launches are refused", [&] { wrong_launches_are_refused(config); });
  }
  report("emulate: an inline launch gives its own error", an_inline_launch_gives_its_own_error);
  report("emulate: launches behind a fault do not run", launches_behind_a_fault_do_not_run);
  report("fault: compilations and loads fail when asked", compilations_and_loads_fail_when_asked);
  report("fault: launches count as work", launches_count_as_work);
  report("fault: a launch may hang or lose the device", a_launch_may_hang_or_lose_the_device);
  return failures;
}
