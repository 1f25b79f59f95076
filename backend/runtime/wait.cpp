// runtime/wait.cpp: the sliced wait.
#include "runtime/wait.h"

#include <backplane/driver.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "runtime/errors.h"
#include "runtime/watchdog.h"

namespace backplane {
namespace {
constexpr uint64_t kSliceNs = 50'000'000;  // the longest delay until a Ctrl-C is noticed
std::atomic<void (*)()> g_interrupt_check{nullptr};
std::atomic<void (*)()> g_wait_check{nullptr};
}  // namespace

void set_interrupt_check(void (*check)()) { g_interrupt_check.store(check); }

void set_wait_check(void (*check)()) { g_wait_check.store(check); }

void check_waited() {
  if (const auto check = g_wait_check.load(std::memory_order_relaxed)) check();
}

void throw_waited(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text) {
  if (status != BP_TIMEOUT || watchdog_ns() == UINT64_MAX) throw_status(status, call, device, text);
  std::string message = status_message(status, call, device, text) + "\nThe wait took longer than the " +
                        std::to_string(static_cast<double>(watchdog_ns()) / 1e9).substr(0, 6) +
                        " seconds of " BACKPLANE_ENV_PREFIX "_WATCHDOG_SECONDS; the work continues, if it can.";
  if (const std::string work = pending_work(device); !work.empty()) message += " Not complete:" + work;
  throw c10::Error({call, "backplane", 0}, std::move(message));
}

int32_t interruptible_wait(const std::function<int32_t(uint64_t timeout_ns)>& wait) {
  const auto check = g_interrupt_check.load();
  const uint64_t limit = watchdog_ns();
  if (check == nullptr && g_wait_check.load() == nullptr) return wait(limit);
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    const auto waited = static_cast<uint64_t>((std::chrono::steady_clock::now() - begin).count());
    if (waited >= limit) return BP_TIMEOUT;
    const int32_t status = wait(std::min(kSliceNs, limit - waited));
    if (status != BP_TIMEOUT) return status;
    if (check != nullptr) check();
    check_waited();
  }
}

}  // namespace backplane
