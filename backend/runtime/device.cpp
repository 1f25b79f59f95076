// runtime/device.cpp: counting, visibility and the current device.
#include "runtime/device.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "runtime/driver.h"
#include "runtime/inventory.h"
#include "runtime/options.h"

namespace backplane {
namespace device_impl {
namespace {

// Made once, after the driver was loaded; immutable from then on.
struct Devices {
  std::vector<VisibleDevice> visible;
  std::string reason;  // why there is none
};

const Devices& devices() {
  static const Devices* found = [] {
    auto* result = new Devices();
    try {
      const Driver* driver = loaded_driver();
      if (driver == nullptr) {
        result->reason = driver_info().refusal;
      } else {
        result->visible = visible_devices(driver->table);
        if (result->visible.empty()) {
          result->reason = env("VISIBLE_DEVICES") ? "the driver's devices are hidden by " BACKPLANE_ENV_PREFIX "_VISIBLE_DEVICES"
                                                  : "the driver finds no device";
        }
      }
    } catch (const std::exception& error) {
      result->reason = error.what();
    }
    return result;
  }();
  return *found;
}

std::array<std::atomic<bool>, kMaxDevices> contexts{};
thread_local c10::DeviceIndex t_current = 0;

}  // namespace
}  // namespace device_impl

c10::DeviceIndex device_count() noexcept { return static_cast<c10::DeviceIndex>(device_impl::devices().visible.size()); }

void require_device() {
  load_driver();  // raises what the user asked for by name and cannot have
  TORCH_CHECK(device_count() > 0, "No ", device_name(), " device is available: ", device_impl::devices().reason);
}

void check_device(c10::DeviceIndex device) {
  if (C10_LIKELY(device >= 0 && device < device_count())) return;
  require_device();
  TORCH_CHECK(false, "invalid device index ", static_cast<int>(device), ": there ", device_count() == 1 ? "is " : "are ",
              static_cast<int>(device_count()), " ", device_name(), device_count() == 1 ? " device" : " devices", " (0 to ",
              static_cast<int>(device_count()) - 1, ")");
}

c10::DeviceIndex resolve_device(c10::DeviceIndex device) {
  if (device == -1) device = current_device();
  check_device(device);
  return device;
}

c10::DeviceIndex current_device() noexcept { return device_impl::t_current; }

void set_device(c10::DeviceIndex device) {
  check_device(device);
  if (device == device_impl::t_current) return;
  device_impl::t_current = device;
  // A driver hears of it once it is open; before that there is no context that a vendor's library could look at.
  const Driver* driver = driver_if_open();
  if (driver != nullptr && driver->table.set_current != nullptr) call<&bp_driver::set_current>(device);
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const auto previous = current_device();
  set_device(device);
  return previous;
}

c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex device) { return device < 0 ? current_device() : exchange_device(device); }

void set_device_noexcept(c10::DeviceIndex device) noexcept {
  if (device < 0 || device >= device_count() || device == device_impl::t_current) return;
  device_impl::t_current = device;
  const Driver* driver = driver_if_open();
  if (driver != nullptr && driver->table.set_current != nullptr) call_noexcept<&bp_driver::set_current>(device);
}

int32_t driver_index(c10::DeviceIndex device) {
  if (device == -1) return BP_HOST_DEVICE;
  check_device(device);
  return device_impl::devices().visible[static_cast<size_t>(device)].driver_index;
}

void mark_context(c10::DeviceIndex device) noexcept {
  auto& flag = device_impl::contexts[static_cast<size_t>(device)];
  if (!flag.load(std::memory_order_relaxed)) flag.store(true, std::memory_order_relaxed);
}

bool has_context(c10::DeviceIndex device) noexcept {
  return device >= 0 && device < kMaxDevices && driver_if_open() != nullptr &&
         device_impl::contexts[static_cast<size_t>(device)].load(std::memory_order_relaxed);
}

bool is_initialized() noexcept { return driver_if_open() != nullptr; }

const bp_device_properties& device_properties(c10::DeviceIndex device) {
  check_device(device);
  return device_impl::devices().visible[static_cast<size_t>(device)].properties;
}

c10::DeviceIndex device_of_pointer(const void* pointer) {
  const Driver* driver = driver_if_open();
  if (driver == nullptr || driver->table.pointer_info == nullptr) return -1;
  bp_pointer_info info{};
  info.struct_size = sizeof(info);
  if (driver->table.pointer_info(driver->table.self, reinterpret_cast<uint64_t>(pointer), &info) != BP_OK) return -1;
  if (info.kind != BP_MEMORY_DEVICE) return -1;
  const auto& visible = device_impl::devices().visible;
  for (size_t i = 0; i < visible.size(); ++i) {
    if (visible[i].driver_index == info.device) return static_cast<c10::DeviceIndex>(i);
  }
  return -1;
}

bool driver_memory_info(c10::DeviceIndex device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (open_driver().table.memory_info == nullptr) return false;
  call<&bp_driver::memory_info>(device, free_bytes, total_bytes);
  return true;
}

}  // namespace backplane
