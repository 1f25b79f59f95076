// backplane/random.h: how a random operator takes its range of a device generator's sequence before it launches.
#pragma once

#include <ATen/core/Generator.h>
#include <backplane/philox.h>

#include <optional>

namespace backplane {

// Takes the next `count` 32-bit numbers (rounded up to a multiple of 4) from `generator`, or from the default generator of `device` if it
// is empty, and returns their position, which is passed to the kernel by value. `count` is per launch, not per thread. Any thread; takes
// the generator's mutex, so the caller must not hold it. Throws for a generator of another device type.
PhiloxState philox_state(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t count);

}  // namespace backplane
