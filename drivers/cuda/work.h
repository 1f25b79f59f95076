// drivers/cuda/work.h: what is queued on a stream besides kernels: copies, fills and callbacks; and the wait for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include <backplane/driver/cxx/wait.hpp>

#include "gpus.h"

namespace backplane::driver::cuda {

struct CopyRange {
  uint64_t dst;
  int32_t dst_device;
  uint64_t src;
  int32_t src_device;
  uint64_t bytes;
};

/// Queues a copy on a stream of `gpu`; false if there is nothing to copy. Throws Error(BP_INVALID_ARGUMENT) for devices that are not
/// the stream's and another one.
bool queue_copy_on(const Gpus& gpus, Gpu& gpu, const CopyRange& range, CUstream stream);

/// `count` patterns of 1, 2, 4 or 8 bytes from dst on.
class Fill {
 public:
  /// Throws Error(BP_INVALID_ARGUMENT).
  Fill(const void* pattern, uint32_t pattern_size, uint64_t dst, uint64_t count);
  uint64_t bytes() const { return count_ * size_; }
  void queue(const Library& cuda, Device& device, CUstream stream) const;

 private:
  void queue_pairs(const Library& cuda, Device& device, CUstream stream) const;

  uint32_t words_[2] = {0, 0};
  uint32_t size_;
  uint64_t dst_, count_;
};

/// stream_callback.
void queue_callback_on(const Library& cuda, Device& device, CUstream stream, bp_callback fn, void* arg);

/// A stream by CUDA's number of it; one that is not of this instance is taken in. Throws Error(BP_INVALID_ARGUMENT).
CUstream stream_of_number(const Library& cuda, Device& device, uint64_t number);

/// CUDA's flags for those of event_create.
inline unsigned event_flags(uint32_t flags) {
  unsigned out = flags & BP_EVENT_TIMING ? 0u : CU_EVENT_DISABLE_TIMING;
  if (flags & BP_EVENT_BLOCKING) out |= CU_EVENT_BLOCKING_SYNC;
  if (flags & BP_EVENT_IPC) out |= CU_EVENT_INTERPROCESS;
  return out;
}

/// Looks without a pause as long as a short kernel takes, then more and more rarely. `ask` gives BP_OK or BP_PENDING.
template <class Ask>
int32_t wait(uint64_t timeout_ns, Ask&& ask) {
  const Deadline deadline(timeout_ns);
  const auto spin_until = Deadline::Clock::now() + std::chrono::microseconds(200);
  do {
    if (ask() == BP_OK) return BP_OK;
    if (deadline.passed()) return BP_TIMEOUT;
    std::this_thread::yield();
  } while (Deadline::Clock::now() < spin_until);
  return poll(deadline.left_ns(), ask);
}

}  // namespace backplane::driver::cuda
