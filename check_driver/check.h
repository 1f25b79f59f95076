// check_driver/check.h: what a check is: a name, what it needs of the driver, and a function that throws when the contract is broken.
#pragma once

#include <backplane/driver/cxx/groups.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace backplane::check {

class Context;

namespace need_impl {
enum Index : uint32_t {
#define BP_INDEX(group, GROUP, about) index_of_##group,
  BP_DRIVER_GROUPS(BP_INDEX)
#undef BP_INDEX
};
constexpr uint32_t first_group = 1u << 18;
}  // namespace need_impl

// What a check needs of the driver. A check whose needs are not met is reported as "not offered", never as passed.
enum Need : uint32_t {
  needs_nothing = 0,
  needs_streams = 1u << 0,
  needs_events = 1u << 1,
  needs_pinned = 1u << 2,
  needs_fill = 1u << 3,
  needs_two_devices = 1u << 4,
  needs_memory_info = 1u << 5,
  needs_set_current = 1u << 6,
  needs_stream_native = 1u << 7,
  needs_stream_from_native = 1u << 8,
  needs_stream_callback = 1u << 9,
  needs_host_register = 1u << 10,
  needs_pointer_info = 1u << 11,
  needs_query_ext = 1u << 12,
  needs_threads = 1u << 13,    // calls from several threads at once
  needs_no_device = 1u << 14,  // runs even where the driver has no device
  starts_closed = 1u << 15,    // the check opens the instance itself
  starts_unloaded = 1u << 16,  // the check loads the driver itself
  breaks_device = 1u << 17,    // loaded under the fault shim if the driver has no host functions, one of which could fail
#define BP_NEED(group, GROUP, about) needs_##group = need_impl::first_group << need_impl::index_of_##group,
  BP_DRIVER_GROUPS(BP_NEED)  // needs_peer and so on: the optional groups
#undef BP_NEED
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
#define BP_FAMILY(group, GROUP, about) Checks group##_checks();
BP_DRIVER_GROUPS(BP_FAMILY)
#undef BP_FAMILY
Checks dialect_checks();
Checks fault_checks();
Checks lost_checks();
Checks fork_checks();
Checks life_checks();

}  // namespace backplane::check
