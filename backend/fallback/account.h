// fallback/account.h: the cost of the fallback, by operator. A call adds two reads of the processor's counter and three additions.
#pragma once

#include <c10/util/ApproximateClock.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "fallback/host_arguments.h"

namespace backplane::fallback {

struct Plan;

// The account of one operator. Any thread adds to it; the lock of account.cpp protects the sites.
struct Account {
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> ticks{0};  // of c10's approximate clock, inside the fallback
  std::atomic<uint64_t> to_host{0};
  std::atomic<uint64_t> to_device{0};
  std::atomic<uint64_t> shared{0};
  std::atomic<uint64_t> widened{0};     // calls that were computed in float32 for a half type; always counted
  std::atomic<uint32_t> site_epoch{0};  // when a site was last looked up; see new_site_epoch
  std::string first_site;
  std::string site;
};

namespace account {
extern std::atomic<bool> is_on;
extern std::atomic<uint32_t> site_epoch;
void find_site(Account& account);
}  // namespace account

// Accounts for one call, from its construction on.
class Entry {
 public:
  explicit Entry(Account& account) : account_(account), is_on_(account::is_on.load(std::memory_order_relaxed)) {
    account.calls.fetch_add(1, std::memory_order_relaxed);
    if (!is_on_) return;
    if (C10_UNLIKELY(account.site_epoch.load(std::memory_order_relaxed) != account::site_epoch.load(std::memory_order_relaxed))) {
      account::find_site(account);
    }
    begin_ = c10::getApproximateTime();
  }

  // The time of an operator that throws counts, too.
  ~Entry() {
    if (is_on_) account_.ticks.fetch_add(static_cast<uint64_t>(c10::getApproximateTime() - begin_), std::memory_order_relaxed);
  }

  void add(const Traffic& traffic) {
    if (!is_on_) return;
    if (traffic.to_host != 0) account_.to_host.fetch_add(traffic.to_host, std::memory_order_relaxed);
    if (traffic.to_device != 0) account_.to_device.fetch_add(traffic.to_device, std::memory_order_relaxed);
    if (traffic.shared != 0) account_.shared.fetch_add(traffic.shared, std::memory_order_relaxed);
  }

  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  Account& account_;
  bool is_on_;
  decltype(c10::getApproximateTime()) begin_{};
};

// The calling thread's position in Python, "file:line (function)"; "" without Python.
std::string python_site();

}  // namespace backplane::fallback
