// distributed/deadline.h: the remaining time of a call, as a timeout.
#pragma once

#include <algorithm>
#include <chrono>

namespace backplane::distributed {

// At least 1 ms: 0 selects a default in Gloo and in drivers.
inline std::chrono::milliseconds left_of(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now()));
}

}  // namespace backplane::distributed
