// runtime/sleep.h: device work that does nothing for some time, for tests that need a busy stream.
#pragma once

#include <cstdint>

namespace backplane {

// Queues it on the current stream. A cycle is one of the device's clock (clock_khz), or a nanosecond where the driver does not report it.
// NotImplementedError for a driver without host functions; ValueError for a negative number.
void sleep_cycles(int64_t cycles);

}  // namespace backplane
