// drivers/sim/fault_injection.h: faults of the simulated device on request: memory that is refused, delays, traps for stray accesses.
//
// Options (drivers/engine/fault_trigger.h has <when>):
//   alloc_fail=<when>   those allocations are out of memory
//   delay=<us>          each piece of work takes up to so many microseconds more, at random: orders that happen to hold break
//   seed=<n>            of these delays: the same seed and the same order of submission give the same delays
//   link=<size>         bytes a second of every copy that crosses a link, between host and device or two devices
//   strict=on|off       only live allocations are mapped: a kernel or a host access beside them is a segmentation fault (memory.h)
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <backplane/driver/cxx/options.hpp>

#include "../engine/fault_trigger.h"

namespace backplane::driver::sim {

class FaultInjection {
 public:
  explicit FaultInjection(Options& options)
      : alloc_fail_("alloc_fail", options.text("alloc_fail", "", FaultTrigger::kForm)),
        delay_us_(static_cast<uint64_t>(options.integer("delay", 0, 0, 10'000'000))),
        seed_(static_cast<uint64_t>(options.integer("seed", 0, 0, INT64_MAX))),
        link_(options.size("link", UINT64_MAX)),
        strict_(options.choice("strict", false, {{"on", true}, {"off", false}})) {}

  bool strict() const { return strict_; }
  bool refuses_allocation() { return alloc_fail_.strikes(); }
  bool delays() const { return delay_us_ != 0; }
  bool slow_links() const { return link_ != UINT64_MAX; }

  /// How much longer the next piece of work takes. Any thread.
  std::chrono::microseconds next_delay() {
    uint64_t x = seed_ + 0x9e3779b97f4a7c15ull * (drawn_.fetch_add(1, std::memory_order_relaxed) + 1);  // splitmix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return std::chrono::microseconds((x ^ (x >> 31)) % (delay_us_ + 1));
  }

  /// What a link takes for that many bytes.
  std::chrono::nanoseconds on_link(uint64_t bytes) const {
    return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(link_)));
  }

 private:
  FaultTrigger alloc_fail_;
  const uint64_t delay_us_, seed_, link_;
  const bool strict_;
  std::atomic<uint64_t> drawn_{0};
};

}  // namespace backplane::driver::sim
