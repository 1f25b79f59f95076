// check_driver/check.h: what a check is: a name, what it needs of the driver, and a function that throws when the contract is broken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace backplane::check {

class Context;

// What a check needs of the driver. A check whose needs are not met is reported as "not offered", never as passed.
enum Need : uint32_t {
  needs_nothing = 0,
  needs_streams = 1u << 0,
  needs_events = 1u << 1,
  needs_pinned = 1u << 2,
  needs_fill = 1u << 3,
  needs_host_exec = 1u << 4,
  needs_host_view = 1u << 5,
  needs_peer = 1u << 6,
  needs_two_devices = 1u << 7,
  needs_memory_info = 1u << 8,
  needs_set_current = 1u << 9,
  needs_stream_native = 1u << 10,
  needs_host_register = 1u << 11,
  needs_pointer_info = 1u << 12,
  needs_query_ext = 1u << 13,
  needs_threads = 1u << 14,    // calls from several threads at once
  needs_no_device = 1u << 15,  // runs even where the driver has no device
  starts_closed = 1u << 16,    // the check opens the instance itself
  starts_unloaded = 1u << 17,  // the check loads the driver itself
  needs_vmm = 1u << 18,
  needs_ipc = 1u << 19,
  needs_stream_callback = 1u << 20,
  needs_stream_from_native = 1u << 21,
  breaks_device = 1u << 22,  // loaded under the fault shim if the driver has no host functions, one of which could fail
};

struct Check {
  const char* id;    // "family.name"
  const char* what;  // the promise that is checked, a few words
  uint32_t needs;
  void (*run)(Context&);
};

using Checks = std::vector<Check>;

// Thrown by a check: the driver breaks the contract. `rule` is the sentence of driver.h that says so.
struct Failure {
  std::string text;
  std::string rule;
};

// Thrown by a check, or before it: the driver does not offer what is to be checked.
struct NotOffered {
  std::string reason;
};

// Thrown by a check: the driver offers what is to be checked, and yet it could not be looked at.
struct NotRun {
  std::string reason;
  bool again = false;  // a longer hold may help
};

// Thrown when the driver cannot be loaded at all: nothing can be checked.
struct LoadError {
  std::string text;
};

// Every check in the order of the report. The first family is "load": if one of its checks fails, nothing else can run.
const Checks& all_checks();

// One family a file.
Checks load_checks();
Checks device_checks();
Checks memory_checks();
Checks copy_checks();
Checks pinned_checks();
Checks fill_checks();
Checks pointer_checks();
Checks stream_checks();
Checks event_checks();
Checks callback_checks();
Checks wait_checks();
Checks error_checks();
Checks thread_checks();
Checks ext_checks();
Checks host_exec_checks();
Checks host_view_checks();
Checks peer_checks();
Checks vmm_checks();
Checks ipc_checks();
Checks fault_checks();
Checks lost_checks();
Checks fork_checks();
Checks life_checks();

}  // namespace backplane::check
