// runtime/guard.cpp: c10's device guard: devices, streams and events for all device-generic code of PyTorch.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceCapability.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/activity.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/dtypes.h"
#include "runtime/event.h"
#include "runtime/reports.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"
#include "torch/compat.h"

namespace backplane {
namespace guard_impl {
namespace {

// A device computes in the dtypes that its properties name. Dtypes for which the driver has no bit keep torch's default, supported, since
// storage and copies work for every dtype and the fallback computes.
uint64_t unsupported_bits(uint64_t dtypes) {
  static_assert(int{c10::kIndex_Float8_e5m2} == static_cast<int>(c10::ScalarType::Float8_e5m2));  // the bits are in the order of dtypes
  uint64_t bits = 0;
  for (const auto& [flag, dtype] : kDriverDtypes) {
    if (dtypes != 0 && (dtypes & flag) == 0) bits |= uint64_t{1} << static_cast<int>(dtype);
  }
  return bits;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }

  c10::Device exchangeDevice(c10::Device device) const override { return {kDevice, exchange_device(device.index())}; }
  c10::Device getDevice() const override { return {kDevice, current_device()}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_device_noexcept(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits &= ~unsupported_bits(device_properties(resolve_device(device.index())).dtypes);
    return capability;
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize_device(device);
    raise_reports(resolve_device(device));
  }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    const auto index = resolve_device(device.index());
    return pool_stream(index, high ? device_properties(index).priority_greatest : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override { return pool_stream(device.index(), priority); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override { return query_stream(stream); }
  void synchronizeStream(const c10::Stream& stream) const override {
    about_to_wait("synchronize() of a stream");
    synchronize_stream(stream);
    raise_reports(stream);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const BACKPLANE_OVERRIDE_IF_PRESENT {
    return reinterpret_cast<void*>(stream_native_handle(stream));
  }
  bool isStreamCapturing(const c10::Stream& stream) const BACKPLANE_OVERRIDE_IF_PRESENT { return is_capturing(stream); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device, const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device ", static_cast<int>(device),
                " does not match recording stream's device ", static_cast<int>(stream.device_index()), ".");
    if (*event == nullptr) *event = new Event(flag == c10::EventFlag::BACKEND_DEFAULT ? BP_EVENT_TIMING : 0u);
    static_cast<Event*>(*event)->record(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) static_cast<Event*>(event)->block(stream);
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    const auto* asked = static_cast<Event*>(event);
    const bool done = asked->query();
    if (done) note(ActivityKind::event_done, asked->device(), 0, reinterpret_cast<uint64_t>(asked->handle()));
    return done;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) static_cast<Event*>(event)->synchronize();
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    return static_cast<Event*>(start)->elapsed_ms(*static_cast<Event*>(end));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    c10::getDeviceAllocator(kDevice)->recordStream(data, stream);
  }
};

// Never destroyed: guards run in destructors until the end of the process.
const c10::impl::DeviceGuardImplRegistrar g_guard(kDevice, new Guard());

}  // namespace
}  // namespace guard_impl
}  // namespace backplane
