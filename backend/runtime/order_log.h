// runtime/order_log.h: the activities that order work and memory, as a list for the stream sanitizer.
#pragma once

#include <vector>

#include "runtime/activity.h"

namespace backplane {

void switch_order_log(bool on);  // starts with an empty list
std::vector<Activity> take_order_log();

}  // namespace backplane
