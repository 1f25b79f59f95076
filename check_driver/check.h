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
#define BP_INDEX_OF_SLOT(group, slot) index_of_##slot,
#define BP_INDEX_OF_GROUP(group, GROUP, about) index_of_##group,
  BP_DRIVER_SLOTS(BP_INDEX_OF_SLOT) BP_DRIVER_GROUPS(BP_INDEX_OF_GROUP)
#undef BP_INDEX_OF_SLOT
#undef BP_INDEX_OF_GROUP
};
}  // namespace need_impl

// What a check needs of the driver. A check whose needs are not met is reported as "not offered", never as passed.
enum Need : uint64_t {
  needs_nothing = 0,
  needs_streams = 1u << 0,
  needs_events = 1u << 1,
  needs_pinned = 1u << 2,
  needs_two_devices = 1u << 3,
  needs_threads = 1u << 4,    // calls from several threads at once
  needs_no_device = 1u << 5,  // runs even where the driver has no device
  starts_closed = 1u << 6,    // the check opens the instance itself
  starts_unloaded = 1u << 7,  // the check loads the driver itself
  breaks_device = 1u << 8,    // loaded under the fault shim if the driver has no host functions, one of which could fail
#define BP_NEEDS_SLOT(group, slot) needs_##slot = 1ull << (9 + need_impl::index_of_##slot),
#define BP_NEEDS_GROUP(group, GROUP, about) needs_##group = 1ull << (9 + need_impl::index_of_##group),
  BP_DRIVER_SLOTS(BP_NEEDS_SLOT)    // needs_fill and so on: single slots
  BP_DRIVER_GROUPS(BP_NEEDS_GROUP)  // needs_peer and so on: the optional groups
#undef BP_NEEDS_SLOT
#undef BP_NEEDS_GROUP
};

struct Check {
  const char* id;    // "family.name"
  const char* what;  // the promise that is checked, a few words
  uint64_t needs;
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

// One family a file, in the order of the report: those of the table, of the optional groups, and of all of it.
#define BP_TABLE_FAMILIES(X) X(load) X(device) X(memory) X(copy) X(pinned) X(fill) X(pointer) X(stream) X(event) X(callback)
#define BP_RULE_FAMILIES(X) X(wait) X(error) X(thread) X(ext)
#define BP_WHOLE_FAMILIES(X) X(dialect) X(ttir) X(fault) X(lost) X(fork) X(life)
#define BP_FAMILY(family, ...) Checks family##_checks();
BP_TABLE_FAMILIES(BP_FAMILY)
BP_RULE_FAMILIES(BP_FAMILY)
BP_DRIVER_GROUPS(BP_FAMILY)
BP_WHOLE_FAMILIES(BP_FAMILY)
#undef BP_FAMILY

}  // namespace backplane::check
