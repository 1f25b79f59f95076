// {{ cookiecutter.package_name }}/device.h: the device by its own name, for C++ that links lib{{ cookiecutter.device_name }}.so.
#pragma once

#include <c10/core/Device.h>

namespace {{ cookiecutter.package_name }} {

// torch knows a device of another vendor as PrivateUse1.
inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

inline c10::Device device(c10::DeviceIndex index = 0) { return {kDeviceType, index}; }

}  // namespace {{ cookiecutter.package_name }}
