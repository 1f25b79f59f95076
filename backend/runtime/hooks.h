// runtime/hooks.h: PyTorch's PrivateUse1 hooks. A vendor derives from this class to replace some of them (extend.h).
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace backplane {

class Hooks : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override;
  bool isAvailable() const override;  // never throws, opens nothing
  bool hasPrimaryContext(c10::DeviceIndex device) const override;
  void init() const override;  // opens the driver
  c10::DeviceIndex deviceCount() const override;
  void setCurrentDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex getCurrentDevice() const override;
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override;
  bool isPinnedPtr(const void* data) const override;
  c10::Allocator* getPinnedMemoryAllocator() const override;
  c10::Device getDeviceFromPtr(void* data) const override;
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device = -1) const override;
  at::Generator getNewGenerator(c10::DeviceIndex device = -1) const override;
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override;
};

// Registers the vendor's hooks, or these, with torch. torch takes one object for good, so this runs after the vendor's static initializers:
// dispatch/registered_last.cpp.
void register_hooks();

}  // namespace backplane
