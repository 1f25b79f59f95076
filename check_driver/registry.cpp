// check_driver/registry.cpp: the order of the families in the report.
#include <initializer_list>

#include "check.h"

namespace backplane::check {

const Checks& all_checks() {
  static const Checks all = [] {
    Checks list;
    const auto add = [&](std::initializer_list<Checks (*)()> families) {
      for (Checks (*family)() : families) {
        for (const Check& check : family()) list.push_back(check);
      }
    };
    add({load_checks, device_checks, memory_checks, copy_checks, pinned_checks, fill_checks, pointer_checks, stream_checks, event_checks,
         callback_checks, wait_checks, error_checks, thread_checks, ext_checks});
#define BP_FAMILY(group, GROUP, about) add({group##_checks});
    BP_DRIVER_GROUPS(BP_FAMILY)
#undef BP_FAMILY
    add({dialect_checks, fault_checks, lost_checks, fork_checks, life_checks});
    return list;
  }();
  return all;
}

}  // namespace backplane::check
