// modules/progress.h: shows at a terminal that kernels are being compiled, once that has taken 2 s in the process.
#pragma once

#include <chrono>
#include <string>

namespace backplane {

// Lives while one unit is compiled. The line on stderr is erased with it; nothing is written if stderr is not a terminal. Any thread.
class CompilingLine {
 public:
  explicit CompilingLine(const std::string& unit);
  ~CompilingLine();
  CompilingLine(const CompilingLine&) = delete;
  CompilingLine& operator=(const CompilingLine&) = delete;

 private:
  const std::chrono::steady_clock::time_point begin_;
  bool is_shown_ = false;
};

}  // namespace backplane
