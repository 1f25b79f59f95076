// distributed/deadline.h: what is left of a call's time, for those who take a timeout.
#pragma once

#include <algorithm>
#include <chrono>

namespace backplane::distributed {

// At least 1 ms: Gloo and drivers take 0 for their own default.
inline std::chrono::milliseconds left_of(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now()));
}

}  // namespace backplane::distributed
