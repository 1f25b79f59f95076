// fallback/small_staging.h: the pinned block through which a thread stages small operands.
//
// Note [Small staging]: for such a call the driver's calls dominate the cost. The block stays with the thread, so that no call allocates
// pinned memory, and needs no event: its last copies were queued on one stream, and a call waits for that stream before the host writes to
// the block. On another stream, or while its memory is still referenced, the thread uses another block. When a thread ends, the driver is
// not called: the next thread takes its block, and emptying the cache of pinned memory releases it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>

namespace backplane {

// One call's use of the block, on one stream of a device. One part is for operands, one for results.
class SmallStaging {
 public:
  static constexpr uint64_t kOperands = 32 << 10;
  static constexpr uint64_t kResults = 32 << 10;

  explicit SmallStaging(const c10::Stream& stream);
  ~SmallStaging();
  SmallStaging(const SmallStaging&) = delete;
  SmallStaging& operator=(const SmallStaging&) = delete;

  // Bytes of the operands' part. A reference to its memory must hold the storage.
  const c10::Storage& storage() const { return block_.storage(); }
  char* operands() const { return static_cast<char*>(block_.mutable_data_ptr()); }
  bool has(const void* memory) const;

  // The stream has completed all work that was queued before this call: the host may write to the block.
  void is_quiet() { quiet_ = true; }
  bool check_quiet();

  // Queues a copy to device memory, and returns at once. False, and no effect: there is no room left, or the block is busy.
  bool send(uint64_t address, const void* from, uint64_t bytes);

 private:
  c10::Stream stream_;
  at::Tensor block_;
  uint64_t results_ = 0;  // bytes used of that part
  bool quiet_ = false;
};

}  // namespace backplane
