// runtime/device.h: devices as PyTorch numbers them: count, visibility, the thread's current device, properties.
#pragma once

#include <backplane/driver.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace backplane {

struct Driver;

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 64;

// Visible devices (<PREFIX>_VISIBLE_DEVICES as it is now, until the driver is opened). 0 without a driver. Opens nothing, never throws. The
// driver's answer is cached; a failure is not, so the next call asks again.
c10::DeviceIndex device_count() noexcept;

// Freezes the list of devices, whatever the environment says later; thaw_devices undoes it. For the opening of the driver, under its lock,
// after the devices were counted.
void freeze_devices(const Driver& driver);
void thaw_devices() noexcept;

// Throws c10::Error, with the reason, if there is no device.
void require_device();

// Throws c10::Error "invalid device index" unless 0 <= device < device_count(); refuse_device throws it for any number.
void check_device(c10::DeviceIndex device);
[[noreturn]] void refuse_device(int64_t device);

// -1 -> the current device; any other index is checked.
c10::DeviceIndex resolve_device(c10::DeviceIndex device);

// The calling thread's current device, 0 at first. set_device checks the index and reports it to a driver that has set_current; if the
// driver refuses, nothing changes. A device that was set before the driver was opened is reported at the thread's next use of the driver.
c10::DeviceIndex current_device() noexcept;
void set_device(c10::DeviceIndex device);
c10::DeviceIndex exchange_device(c10::DeviceIndex device);        // returns the previous one
c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex device);  // a negative index is a no-op; returns the current one
void set_device_noexcept(c10::DeviceIndex device) noexcept;       // for destructors: never throws

// Whether this process has used the device (so that a context exists), or any device.
bool has_context(c10::DeviceIndex device) noexcept;
bool is_initialized() noexcept;

// Cached; opens nothing. Throws for a wrong index.
const bp_device_properties& device_properties(c10::DeviceIndex device);

// The device that owns an address by the driver's pointer_info; -1 if the driver does not know it or has no such entry.
c10::DeviceIndex device_of_pointer(const void* pointer);

// The driver's pointer_info of an address; none if the driver is not open, has no such entry, or does not know the address.
std::optional<bp_pointer_info> pointer_info(const void* pointer);

// Whether the opened driver has that entry.
bool knows_pointers();

// The driver's alloc; BP_OUT_OF_MEMORY and other errors are returned. Throws c10::Error for an address that breaks the contract: 0, or not
// a multiple of the alignment in the device's properties.
int32_t driver_alloc(c10::DeviceIndex device, uint64_t bytes, uint32_t flags, uint64_t* address);

// {free, total} bytes from the driver's memory_info; false if the driver has no such entry.
bool driver_memory_info(c10::DeviceIndex device, uint64_t* free_bytes, uint64_t* total_bytes);

// Sets the current device for one scope; free where it is the current one already.
class DeviceSwitch {
 public:
  explicit DeviceSwitch(c10::DeviceIndex device) {
    const c10::DeviceIndex now = current_device();
    if (C10_UNLIKELY(device != now)) {
      set_device(device);
      previous_ = now;
    }
  }
  ~DeviceSwitch() {
    if (C10_UNLIKELY(previous_ >= 0)) set_device_noexcept(previous_);
  }
  DeviceSwitch(const DeviceSwitch&) = delete;
  DeviceSwitch& operator=(const DeviceSwitch&) = delete;

 private:
  c10::DeviceIndex previous_ = -1;
};

}  // namespace backplane
