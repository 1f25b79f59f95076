// modules/launch.cpp: bp.module's launch on the current stream.
#include "modules/launch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/activity.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

namespace backplane {

namespace {

// Filled while the library is loaded, afterwards read-only.
std::vector<const KernelCounter*>& portable_counters() {
  static auto* const instance = new std::vector<const KernelCounter*>;
  return *instance;
}

}  // namespace

void KernelArguments::throw_full() { TORCH_INTERNAL_ASSERT(false, "a kernel's arguments have more than ", kMost, " bytes"); }

KernelCounter& portable_counter(const char* name) {
  const auto* const counted_as = new std::string(std::string("portable/") + name);
  auto* const counter = new KernelCounter(counted_as->c_str());
  portable_counters().push_back(counter);
  return *counter;
}

uint64_t portable_calls() {
  uint64_t calls = 0;
  for (const KernelCounter* counter : portable_counters()) calls += counter->calls();
  return calls;
}

void launch_function(c10::DeviceIndex device, const Function& function, uint64_t groups, const KernelArguments& arguments) {
  constexpr uint64_t kMostGroups = 65535;  // of any target
  const auto most = static_cast<uint32_t>(std::min(std::max<uint64_t>(groups, 1), kMostGroups));
  launch_grid(device, function, {most, 1, 1}, arguments);
}

void launch_grid(c10::DeviceIndex device, const Function& function, const std::array<uint32_t, 3>& grid, const KernelArguments& arguments) {
  bp_launch launch{};
  launch.struct_size = sizeof launch;
  launch.function = function.handle;
  std::copy(grid.begin(), grid.end(), launch.grid);
  launch.group[0] = function.group;
  launch.group[1] = launch.group[2] = 1;
  launch.args = arguments.data();
  launch.args_bytes = arguments.bytes();
  detail::queued_last.store(function.name, std::memory_order_relaxed);
  call<&bp_module::launch>(device, current_stream_handle(device), static_cast<const bp_launch*>(&launch));
  if (activity_wanted()) note_queued(current_stream(device), "kernel");
}

}  // namespace backplane
