// runtime/order_log.h: what orders work and memory, kept as a list for the stream sanitizer.
#pragma once

#include <vector>

#include "runtime/activity.h"

namespace backplane {

void switch_order_log(bool on);  // begins empty
std::vector<Activity> take_order_log();

}  // namespace backplane
