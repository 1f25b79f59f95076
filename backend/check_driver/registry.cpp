// check_driver/registry.cpp: the order of the families in the report.
#include "check.h"

namespace backplane::check {

const Checks& all_checks() {
  static const Checks all = [] {
    Checks list;
    for (Checks (*family)() :
         {load_checks,  device_checks,   memory_checks, copy_checks,  pinned_checks, fill_checks, pointer_checks,   stream_checks,
          event_checks, callback_checks, wait_checks,   error_checks, thread_checks, ext_checks,  host_exec_checks, host_view_checks,
          peer_checks,  vmm_checks,      ipc_checks,    fault_checks, lost_checks,   fork_checks, life_checks}) {
      for (const Check& check : family()) list.push_back(check);
    }
    return list;
  }();
  return all;
}

}  // namespace backplane::check
