// memory/statistics.h: a device's counters under c10's own names, updated under the device lock.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "memory/block.h"

namespace backplane::memory {

// inactive_split counts the free parts of split segments once they are merged into the best-fit sets; recently freed blocks are moved there
// before statistics are read, so current values are exact.
class Statistics {
 public:
  using Values = c10::CachingDeviceAllocator::DeviceStats;

  void handed_out(PoolKind kind, size_t size, size_t requested) {
    increase(values_.allocation, kind, 1);
    increase(values_.allocated_bytes, kind, size);
    increase(values_.active, kind, 1);
    increase(values_.active_bytes, kind, size);
    increase(values_.requested_bytes, kind, requested);
  }
  void freed(PoolKind kind, size_t size, size_t requested) {
    decrease(values_.allocation, kind, 1);
    decrease(values_.allocated_bytes, kind, size);
    decrease(values_.requested_bytes, kind, requested);
  }
  void inactive(PoolKind kind, size_t size) {  // no stream uses it any more
    decrease(values_.active, kind, 1);
    decrease(values_.active_bytes, kind, size);
  }
  void split_free_added(PoolKind kind, size_t size) {
    increase(values_.inactive_split, kind, 1);
    increase(values_.inactive_split_bytes, kind, size);
  }
  void split_free_removed(PoolKind kind, size_t size) {
    decrease(values_.inactive_split, kind, 1);
    decrease(values_.inactive_split_bytes, kind, size);
  }
  void segment_added(PoolKind kind, size_t size, c10::MempoolId_t pool, bool oversize);
  void segment_removed(PoolKind kind, size_t size, c10::MempoolId_t pool, bool oversize);
  // For an expandable segment: it counts as one segment, and its memory as it is mapped, one driver call per chunk.
  void addresses_reserved(PoolKind kind) { increase(values_.segment, kind, 1); }
  void addresses_released(PoolKind kind) { decrease(values_.segment, kind, 1); }
  void mapped(PoolKind kind, size_t size, size_t calls, c10::MempoolId_t pool);
  void unmapped(PoolKind kind, size_t size, size_t calls, c10::MempoolId_t pool);
  void oversize_handed_out() { values_.oversize_allocations.increase(1); }
  void oversize_freed() { values_.oversize_allocations.decrease(1); }

  size_t allocated() const { return static_cast<size_t>(values_.allocated_bytes[0].current); }
  size_t reserved() const { return static_cast<size_t>(values_.reserved_bytes[0].current); }

  Values& values() { return values_; }
  void reset_accumulated();
  void reset_peak();

 private:
  static void increase(c10::CachingAllocator::StatArray& stat, PoolKind kind, size_t amount) {
    stat[0].increase(amount);
    stat[static_cast<size_t>(kind)].increase(amount);
  }
  static void decrease(c10::CachingAllocator::StatArray& stat, PoolKind kind, size_t amount) {
    stat[0].decrease(amount);
    stat[static_cast<size_t>(kind)].decrease(amount);
  }

  Values values_;
};

}  // namespace backplane::memory
