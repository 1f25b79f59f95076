// runtime/hooks.cpp: the hooks and their registration with the device's name.
#include "runtime/hooks.h"

#include <c10/core/DeviceType.h>

#include <cstdio>

#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/overrides.h"

namespace backplane {

bool Hooks::isBuilt() const { return true; }
bool Hooks::isAvailable() const { return device_count() > 0; }
bool Hooks::hasPrimaryContext(c10::DeviceIndex device) const { return has_context(device); }
void Hooks::init() const { open_driver(); }
c10::DeviceIndex Hooks::deviceCount() const { return device_count(); }
void Hooks::setCurrentDevice(c10::DeviceIndex device) const { set_device(device); }
c10::DeviceIndex Hooks::getCurrentDevice() const { return current_device(); }
c10::DeviceIndex Hooks::exchangeDevice(c10::DeviceIndex device) const { return exchange_device(device); }
c10::DeviceIndex Hooks::maybeExchangeDevice(c10::DeviceIndex device) const { return maybe_exchange_device(device); }

bool Hooks::isPinnedPtr(const void* data) const {
  const auto is_pinned = overrides().is_pinned.get();
  return is_pinned != nullptr && is_pinned(data);
}

c10::Allocator* Hooks::getPinnedMemoryAllocator() const { return overrides().pinned_allocator.get()(); }

c10::Device Hooks::getDeviceFromPtr(void* data) const {
  const auto device = device_of_pointer(data);
  TORCH_CHECK(device >= 0, "The pointer ", data, " is not memory of ", device_name(), ".");
  return {kDevice, device};
}

const at::Generator& Hooks::getDefaultGenerator(c10::DeviceIndex device) const {
  return overrides().default_generator.get()(resolve_device(device));
}

at::Generator Hooks::getNewGenerator(c10::DeviceIndex device) const { return overrides().make_generator.get()(resolve_device(device)); }

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const { overrides().resize_storage.get()(storage, bytes); }

namespace hooks_impl {
namespace {

const bool named = [] {
  // A second backend in one process: the Python package refuses before this point; in a C++ program this message is printed and the first
  // one stays.
  if (c10::is_privateuse1_backend_registered() && c10::get_privateuse1_backend() != BACKPLANE_DEVICE_NAME) {
    std::fprintf(stderr, "backplane: this process has the device '%s' already; '%s' cannot be registered as well\n",
                 c10::get_privateuse1_backend().c_str(), BACKPLANE_DEVICE_NAME);
    return false;
  }
  c10::register_privateuse1_backend(BACKPLANE_DEVICE_NAME);
  return true;
}();

}  // namespace
}  // namespace hooks_impl

void register_hooks() {
  if (!hooks_impl::named || at::isPrivateUse1HooksRegistered()) return;
  at::RegisterPrivateUse1HooksInterface(overrides().hooks ? overrides().hooks : new Hooks());
}
}  // namespace backplane
