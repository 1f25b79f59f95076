// modules/progress.cpp: one line, written and erased with the terminal's escape codes.
#include "modules/progress.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "runtime/options.h"

namespace backplane {
namespace progress_impl {
namespace {

constexpr int64_t kSilentNs = 2'000'000'000;
std::atomic<int64_t> spent{0};  // ns of all units of the process
std::atomic<int> units{0};

}  // namespace
}  // namespace progress_impl

CompilingLine::CompilingLine(const std::string& unit) : begin_(std::chrono::steady_clock::now()) {
  const int number = ++progress_impl::units;
  is_shown_ = progress_impl::spent > progress_impl::kSilentNs && isatty(STDERR_FILENO) == 1;
  if (is_shown_) std::fprintf(stderr, "\r\x1b[K%s: compiling kernel %d, %s", device_name(), number, unit.c_str());
}

CompilingLine::~CompilingLine() {
  progress_impl::spent += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count();
  if (is_shown_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace backplane
