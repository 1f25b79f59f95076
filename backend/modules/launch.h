// modules/launch.h: what a family of kernels keeps of its functions, and how it launches one.
#pragma once

#include <backplane/kernel.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <atomic>
#include <cstring>

#include "modules/unit.h"

namespace backplane {

// The functions of one operator by a number that says dtypes, strides and device, found again without a lock. An object with static storage
// needs no initialiser and no end.
class KernelSlots {
 public:
  constexpr KernelSlots() = default;
  KernelSlots(const KernelSlots&) = delete;
  KernelSlots& operator=(const KernelSlots&) = delete;

  // make(): the source of the key. NULL as of find_function.
  const Function* find(uint64_t key, c10::DeviceIndex device, c10::function_ref<KernelSource()> make);

 private:
  struct Slot {  // never freed: a reader may be at it
    uint64_t key;
    const Function* function;
    const Slot* next;
  };
  std::array<std::atomic<const Slot*>, 8> heads_{};
};

// The block of bytes that a kernel takes: addresses first, then the members of its struct, 8 bytes each.
class KernelArguments {
 public:
  static constexpr size_t kMost = 1024;  // what every target takes

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

// A counter of calls by the name "portable/<name>": a vendor's kernel of that name has its own. Lives as long as the process.
KernelCounter& portable_counter(const char* name);
// Calls of all of them since the start.
uint64_t portable_calls();

// Queues the function on the device's current stream with that many groups, as many as the target allows: the kernel walks the rest.
void launch_function(c10::DeviceIndex device, const Function& function, uint64_t groups, const KernelArguments& arguments);

}  // namespace backplane
