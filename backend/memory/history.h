// memory/history.h: the history of a device's memory, for _snapshot: a ring of events, and their stacks.
//
// Note [Stacks]: a stack is gathered before the device lock is taken, because Python frames require the GIL, and destroyed after it is
// released. The recorder does not depend on Python: the caller that enables it provides the function that gathers stacks.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace backplane {

using StackContext = std::shared_ptr<c10::GatheredContext>;

struct HistoryEvent {
  enum class Action : uint8_t {
    alloc,
    free_requested,
    free_completed,  // no other stream uses it any more
    segment_alloc,
    segment_free,
    segment_map,    // an expandable segment grew: [address, address + size)
    segment_unmap,  // or returned memory
    snapshot,
    out_of_memory  // `address`: the device's free bytes
  };
  Action action = Action::alloc;
  c10::DeviceIndex device = 0;
  uint64_t address = 0;
  size_t size = 0;  // bytes: requested size of blocks, whole size of segments
  c10::StreamId stream = 0;
  c10::MempoolId_t pool{0, 0};
  int64_t time_us = 0;  // since the epoch
  StackContext context;
};

struct HistorySettings {
  enum class Stacks : uint8_t { never, state, alloc, all };  // none; of live allocations; also of their events; also of frees
  bool events = true;                                        // false: only the stacks of live allocations
  Stacks stacks = Stacks::all;
  size_t max_entries = std::numeric_limits<size_t>::max();  // the latest ones of a device
  uint32_t skipped = 0;                                     // bit 1 << action: not recorded
  StackContext (*gather)() = nullptr;                       // NULL: no stacks

  StackContext stack(Stacks wanted) const { return gather != nullptr && stacks >= wanted ? gather() : nullptr; }
};

namespace memory {

// One device's; guarded by its lock.
class History {
 public:
  // A stack that is dropped is moved to `dead`, for destruction outside the lock.
  History(const HistorySettings& settings, std::vector<StackContext>& dead) : settings_(settings), dead_(dead) {}
  ~History();

  void add(HistoryEvent event);
  std::vector<HistoryEvent> events() const;  // oldest first

 private:
  const HistorySettings& settings_;
  std::vector<StackContext>& dead_;
  std::vector<HistoryEvent> ring_;
  size_t oldest_ = 0;
};

}  // namespace memory
}  // namespace backplane
