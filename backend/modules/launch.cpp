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

// Filled while the library is loaded, only read from then on.
std::vector<const KernelCounter*>& portable_counters() {
  static auto* const instance = new std::vector<const KernelCounter*>;
  return *instance;
}

}  // namespace

const Function* KernelSlots::find(uint64_t key, c10::DeviceIndex device, c10::function_ref<KernelSource()> make) {
  std::atomic<const Slot*>& head = heads_[key * 0x9e3779b97f4a7c15u >> 61];
  for (const Slot* slot = head.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    if (slot->key == key) return slot->function;
  }
  bool later = false;
  const Function* function = find_function(device, make(), &later);
  if (later) return nullptr;
  auto* const slot = new Slot{key, function, head.load(std::memory_order_relaxed)};
  while (!head.compare_exchange_weak(slot->next, slot, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return function;
}

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
  bp_launch launch{};
  launch.struct_size = sizeof launch;
  launch.function = function.handle;
  launch.grid[0] = static_cast<uint32_t>(std::min(std::max<uint64_t>(groups, 1), kMostGroups));
  launch.grid[1] = launch.grid[2] = 1;
  launch.group[0] = function.group;
  launch.group[1] = launch.group[2] = 1;
  launch.args = arguments.data();
  launch.args_bytes = arguments.bytes();
  detail::queued_last.store(function.name, std::memory_order_relaxed);
  call<&bp_module::launch>(device, current_stream_handle(device), static_cast<const bp_launch*>(&launch));
  if (activity_wanted()) note_queued(current_stream(device), "kernel");
}

}  // namespace backplane
