// runtime/sleep.cpp: a host function that sleeps.
#include "runtime/sleep.h"

#include <backplane/kernel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "runtime/device.h"
#include "runtime/options.h"

namespace backplane {

void sleep_cycles(int64_t cycles) {
  TORCH_CHECK_VALUE(cycles >= 0, "_sleep: expected a number of cycles, got ", cycles);
  TORCH_CHECK_NOT_IMPLEMENTED(can_launch(), "_sleep: the driver of ", device_name(),
                              " runs no host functions (bp.host_exec), by which a stream is kept busy. Queue a large operator instead");
  const c10::DeviceIndex device = current_device();
  const uint32_t khz = device_properties(device).clock_khz;
  const double longest = std::chrono::duration<double, std::nano>(std::chrono::hours(24)).count();
  const double ns = std::min(static_cast<double>(cycles) * (khz == 0 ? 1.0 : 1e6 / khz), longest);
  launch(device, [time = std::chrono::nanoseconds(std::llround(ns))](const DeviceMemory&) { std::this_thread::sleep_for(time); });
}

}  // namespace backplane
