// profiler/stubs.cpp: the device in torch's older profiler, torch.autograd.profiler.profile(use_device=..., use_kineto=False): an event
// before and after each operator, on its current stream.
#include <backplane/driver.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>
#include <functional>
#include <memory>

#include "profiler/recording.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace backplane {
namespace stubs_impl {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

// False also on a device in error.
bool has_happened(const Event& begin, const Event& end) {
  try {
    return begin.query() && end.query();
  } catch (const c10::Error&) {
    return false;
  }
}

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  // Any pointer may be NULL.
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    if (device) *device = current_device();
    if (event) {
      auto made = std::make_shared<Event>(static_cast<uint32_t>(BP_EVENT_TIMING));
      made->record(current_stream());
      *event = std::move(made);
    }
    if (cpu_ns) {
      *cpu_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    }
  }
  // Microseconds; -1, torch's value for none, if not complete: the end of the profile has waited (compat/profiler.py), with a limit.
  float elapsed(const ProfilerVoidEventStub* first, const ProfilerVoidEventStub* second) const override {
    const auto& begin = *static_cast<const Event*>(first->get());
    const auto& end = *static_cast<const Event*>(second->get());
    if (!has_happened(begin, end)) return -1;
    return static_cast<float>(begin.elapsed_ms(end) * 1e3);
  }
  void mark(const char* name) const override { mark_for_vendor(name); }
  void rangePush(const char* name) const override { push_vendor_range(name); }
  void rangePop() const override { pop_vendor_range(); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      const DeviceSwitch on(device);
      op(device);
    }
  }
  void synchronize() const override { synchronize_device(); }
};

[[maybe_unused]] const bool registered = [] {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

}  // namespace
}  // namespace stubs_impl
}  // namespace backplane
