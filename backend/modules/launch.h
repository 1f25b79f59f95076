// modules/launch.h: how a kernel's function is launched, and counted.
#pragma once

#include <backplane/kernel.h>

#include <array>
#include <cstring>

#include "modules/unit.h"

namespace backplane {

// The block of bytes with a kernel's arguments: addresses first, then the members of its struct, 8 bytes each.
class KernelArguments {
 public:
  static constexpr size_t kMost = 1024;  // supported by every target

  void add(uint64_t word) {
    if (C10_UNLIKELY(bytes_ == kMost)) throw_full();
    std::memcpy(block_ + bytes_, &word, sizeof word);
    bytes_ += sizeof word;
  }
  void add(int64_t word) { add(static_cast<uint64_t>(word)); }
  const void* data() const { return block_; }
  size_t bytes() const { return bytes_; }

 private:
  [[noreturn]] static void throw_full();

  alignas(8) char block_[kMost];
  size_t bytes_ = 0;
};

// A counter of calls with the name "portable/<name>": a vendor's kernel of that name has its own. Lives as long as the process.
KernelCounter& portable_counter(const char* name);
// Calls of all of them since the start.
uint64_t portable_calls();

// Queues the function on the device's current stream with that many groups, up to the target's limit: the kernel loops over the rest.
void launch_function(c10::DeviceIndex device, const Function& function, uint64_t groups, const KernelArguments& arguments);
// As many groups as the grid says, none 0, within the target's max_grid.
void launch_grid(c10::DeviceIndex device, const Function& function, const std::array<uint32_t, 3>& grid, const KernelArguments& arguments);

}  // namespace backplane
