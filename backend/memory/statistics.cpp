// memory/statistics.cpp: rarely updated counters, and the resets.
#include "memory/statistics.h"

namespace backplane::memory {
namespace statistics_impl {
namespace {

// Older c10 has no statistics per private pool.
template <typename Values>
c10::CachingAllocator::StatArray* private_pool(Values& values, c10::MempoolId_t pool) {
  if constexpr (requires { values.reserved_bytes_by_private_pools; }) {
    if (pool != c10::MempoolId_t{0, 0}) return &values.reserved_bytes_by_private_pools[pool];
  }
  return nullptr;
}

template <typename Values, typename Reset>
void for_each_array(Values& values, Reset reset) {
  for (auto* array : {&values.allocation, &values.segment, &values.active, &values.inactive_split, &values.allocated_bytes,
                      &values.reserved_bytes, &values.active_bytes, &values.inactive_split_bytes, &values.requested_bytes}) {
    for (auto& stat : *array) reset(stat);
  }
  if constexpr (requires { values.reserved_bytes_by_private_pools; }) {
    for (auto& entry : values.reserved_bytes_by_private_pools) {
      for (auto& stat : entry.second) reset(stat);
    }
  }
  reset(values.oversize_allocations);
  reset(values.oversize_segments);
}

}  // namespace
}  // namespace statistics_impl

void Statistics::segment_added(PoolKind kind, size_t size, c10::MempoolId_t pool, bool oversize) {
  ++values_.num_device_alloc;
  increase(values_.segment, kind, 1);
  increase(values_.reserved_bytes, kind, size);
  if (auto* array = statistics_impl::private_pool(values_, pool)) increase(*array, kind, size);
  if (oversize) values_.oversize_segments.increase(1);
}

void Statistics::segment_removed(PoolKind kind, size_t size, c10::MempoolId_t pool, bool oversize) {
  ++values_.num_device_free;
  decrease(values_.segment, kind, 1);
  decrease(values_.reserved_bytes, kind, size);
  if (auto* array = statistics_impl::private_pool(values_, pool)) decrease(*array, kind, size);
  if (oversize) values_.oversize_segments.decrease(1);
}

void Statistics::mapped(PoolKind kind, size_t size, size_t calls, c10::MempoolId_t pool) {
  values_.num_device_alloc += static_cast<int64_t>(calls);
  increase(values_.reserved_bytes, kind, size);
  if (auto* array = statistics_impl::private_pool(values_, pool)) increase(*array, kind, size);
}

void Statistics::unmapped(PoolKind kind, size_t size, size_t calls, c10::MempoolId_t pool) {
  values_.num_device_free += static_cast<int64_t>(calls);
  decrease(values_.reserved_bytes, kind, size);
  if (auto* array = statistics_impl::private_pool(values_, pool)) decrease(*array, kind, size);
}

void Statistics::reset_accumulated() {
  statistics_impl::for_each_array(values_, [](c10::CachingAllocator::Stat& stat) { stat.reset_accumulated(); });
  values_.num_alloc_retries = 0;
  values_.num_ooms = 0;
  values_.num_sync_all_streams = 0;
  values_.num_device_alloc = 0;
  values_.num_device_free = 0;
}

void Statistics::reset_peak() {
  statistics_impl::for_each_array(values_, [](c10::CachingAllocator::Stat& stat) { stat.reset_peak(); });
}

}  // namespace backplane::memory
