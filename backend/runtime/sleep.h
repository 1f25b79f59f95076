// runtime/sleep.h: device work that does nothing for a while, for tests that need a stream to be busy.
#pragma once

#include <cstdint>

namespace backplane {

// Queues it on the current stream. A cycle is one of the device's clock (clock_khz), or a nanosecond where the driver does not tell that.
// NotImplementedError for a driver without host functions; ValueError for a negative number.
void sleep_cycles(int64_t cycles);

}  // namespace backplane
