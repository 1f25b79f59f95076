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
  TORCH_CHECK(device >= 0, "The pointer ", data, " is no memory of ", device_name(), ".");
  return {kDevice, device};
}

const at::Generator& Hooks::getDefaultGenerator(c10::DeviceIndex device) const {
  return overrides().default_generator.get()(resolve_device(device));
}

at::Generator Hooks::getNewGenerator(c10::DeviceIndex device) const { return overrides().make_generator.get()(resolve_device(device)); }

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const { overrides().resize_storage.get()(storage, bytes); }

namespace hooks_impl {
namespace {

// torch takes one hooks object for good, and takes it early; this one asks the slot at each call, so a vendor's class may come later.
class Forwarding final : public at::PrivateUse1HooksInterface {
  static const Hooks& to() { return *overrides().hooks.get(); }

 public:
  bool isBuilt() const override { return to().isBuilt(); }
  bool isAvailable() const override { return to().isAvailable(); }
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return to().hasPrimaryContext(device); }
  void init() const override { to().init(); }
  c10::DeviceIndex deviceCount() const override { return to().deviceCount(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { to().setCurrentDevice(device); }
  c10::DeviceIndex getCurrentDevice() const override { return to().getCurrentDevice(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return to().exchangeDevice(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return to().maybeExchangeDevice(device); }
  bool isPinnedPtr(const void* data) const override { return to().isPinnedPtr(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return to().getPinnedMemoryAllocator(); }
  c10::Device getDeviceFromPtr(void* data) const override { return to().getDeviceFromPtr(data); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return to().getDefaultGenerator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return to().getNewGenerator(device); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override { to().resizePrivateUse1Bytes(storage, bytes); }
};

const bool g_registered = [] {
  overrides().hooks.core = new Hooks();
  // A second backend in one process: the Python package refuses before it gets here; a C++ program is told and keeps the first.
  if (c10::is_privateuse1_backend_registered() && c10::get_privateuse1_backend() != BACKPLANE_DEVICE_NAME) {
    std::fprintf(stderr, "backplane: this process has the device '%s' already; '%s' cannot be registered beside it\n",
                 c10::get_privateuse1_backend().c_str(), BACKPLANE_DEVICE_NAME);
    return false;
  }
  c10::register_privateuse1_backend(BACKPLANE_DEVICE_NAME);
  if (!at::isPrivateUse1HooksRegistered()) at::RegisterPrivateUse1HooksInterface(new Forwarding());
  return true;
}();

}  // namespace
}  // namespace hooks_impl
}  // namespace backplane
