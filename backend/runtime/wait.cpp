// runtime/wait.cpp: the sliced wait.
#include "runtime/wait.h"

#include <backplane/driver.h>

#include <atomic>

namespace backplane {
namespace {
constexpr uint64_t kSliceNs = 50'000'000;  // how late a Ctrl-C may be noticed
std::atomic<void (*)()> g_interrupt_check{nullptr};
}  // namespace

void set_interrupt_check(void (*check)()) { g_interrupt_check.store(check); }

int32_t interruptible_wait(const std::function<int32_t(uint64_t timeout_ns)>& wait) {
  const auto check = g_interrupt_check.load();
  if (check == nullptr) return wait(BP_NO_TIMEOUT);
  while (true) {
    const int32_t status = wait(kSliceNs);
    if (status != BP_TIMEOUT) return status;
    check();
  }
}

}  // namespace backplane
