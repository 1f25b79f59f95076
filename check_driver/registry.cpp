// check_driver/registry.cpp: the order of the families in the report.
#include "check.h"

namespace backplane::check {

const Checks& all_checks() {
  static const Checks all = [] {
    Checks list;
#define BP_ADD(family, ...) \
  for (const Check& check : family##_checks()) list.push_back(check);
    BP_TABLE_FAMILIES(BP_ADD)
    BP_RULE_FAMILIES(BP_ADD)
    BP_DRIVER_GROUPS(BP_ADD)
    BP_WHOLE_FAMILIES(BP_ADD)
#undef BP_ADD
    return list;
  }();
  return all;
}

}  // namespace backplane::check
