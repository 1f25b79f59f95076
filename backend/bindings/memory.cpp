// bindings/memory.cpp: what the allocators offer beyond torch.accelerator: raw memory, limits, private pools, host statistics.
#include <ATen/core/CachingHostAllocator.h>

#include <memory>
#include <thread>

#include "aten/host_view.h"
#include "bindings/module.h"
#include "inductor/graph_results.h"
#include "memory/alloc_config.h"
#include "memory/caching_allocator.h"
#include "memory/pluggable.h"

namespace backplane::bindings {
namespace {

py::dict stat_dict(const c10::CachingAllocator::Stat& stat) {
  py::dict d;
  d["current"] = stat.current;
  d["peak"] = stat.peak;
  d["allocated"] = stat.allocated;
  d["freed"] = stat.freed;
  return d;
}

py::dict duration_dict(const c10::CachingAllocator::DurationStat& stat) {
  py::dict d;
  d["total"] = stat.total;
  d["max"] = stat.max;
  d["min"] = stat.min;
  d["count"] = stat.count;
  d["avg"] = stat.count == 0 ? 0 : stat.total / stat.count;
  return d;
}

// The keys of torch.cuda.host_memory_stats.
py::dict host_stats() {
  const at::HostStats stats = at::getHostAllocator(kDevice)->get_stats();
  py::dict d;
  d["num_host_alloc"] = stats.num_host_alloc;
  d["num_host_free"] = stats.num_host_free;
  d["allocations"] = stat_dict(stats.allocations);
  d["allocated_bytes"] = stat_dict(stats.allocated_bytes);
  d["active_requests"] = stat_dict(stats.active_requests);
  d["active_bytes"] = stat_dict(stats.active_bytes);
  d["host_alloc_time"] = duration_dict(stats.host_alloc_time);
  d["host_free_time"] = duration_dict(stats.host_free_time);
  return d;
}

// Two addresses of functions; 0 and 0: no functions.
const memory::Pluggable* pluggable(uint64_t alloc, uint64_t free) {
  if (alloc == 0 && free == 0) return nullptr;
  return memory::Pluggable::of(reinterpret_cast<void*>(alloc), reinterpret_cast<void*>(free));
}

// The calling thread allocates from the pool until end_pool.
void begin_pool(int64_t device, c10::MempoolId_t pool) {
  caching_allocator().begin_allocate_to_pool(
      resolve_device(device_index(device)), pool,
      [thread = std::this_thread::get_id()](const c10::Stream&) { return std::this_thread::get_id() == thread; });
}

py::dict array_dict(const c10::CachingAllocator::StatArray& array) {
  py::dict d;
  d["all"] = stat_dict(array[0]);
  d["small_pool"] = stat_dict(array[1]);
  d["large_pool"] = stat_dict(array[2]);
  return d;
}

template <typename Stats>
py::dict private_pools(const Stats& stats) {
  py::dict d;
  if constexpr (requires { stats.reserved_bytes_by_private_pools; }) {  // not in older c10
    for (const auto& entry : stats.reserved_bytes_by_private_pools) {
      d[py::make_tuple(entry.first.first, entry.first.second)] = array_dict(entry.second);
    }
  }
  return d;
}

// The keys of torch.cuda.memory_stats that torch's generic statistics do not have.
py::dict more_stats(int64_t device) {
  const auto index = resolve_device(device_index(device));
  py::dict d;
  d["num_oom_rejections"] = caching_allocator().fraction_rejections(index);
  d["reserved_bytes_by_private_pools"] = private_pools(caching_allocator().getDeviceStats(index));
  return d;
}

// The keys of a snapshot's allocator_settings.
py::dict allocator_config() {
  const memory::AllocConfig& config = memory::alloc_config();
  py::dict d;
  d["text"] = config.text;
  d["max_split_size"] = static_cast<int64_t>(config.max_split_size);
  d["garbage_collection_threshold"] = config.garbage_collection_threshold;
  d["expandable_segments"] = config.expandable_segments;
  d["roundup_power2_divisions"] = config.divisions;
  return d;
}

uint64_t raw_alloc(size_t bytes, int64_t stream_id, int64_t device) {
  return reinterpret_cast<uint64_t>(caching_allocator().raw_alloc(bytes, stream_of(stream_id, device)));
}

}  // namespace

void bind_memory(py::module_& module) {
  def_blocking(module, "raw_alloc", raw_alloc);
  def_blocking(module, "raw_delete", [](uint64_t address) { CachingAllocator::raw_delete(reinterpret_cast<void*>(address)); });
  def_blocking(module, "empty_cache", [] { c10::getDeviceAllocator(kDevice)->emptyCache(); });
  def_blocking(module, "empty_pool", [](c10::MempoolId_t pool) { c10::getDeviceAllocator(kDevice)->emptyCache(pool); });
  def_blocking(module, "set_fraction", [](double fraction, int64_t device) {
    caching_allocator().set_memory_fraction(fraction, resolve_device(device_index(device)));
  });
  def_blocking(module, "fraction",
               [](int64_t device) { return caching_allocator().memory_fraction(resolve_device(device_index(device))); });
  def_quick(module, "block_size", [](uint64_t address) { return CachingAllocator::block_size(reinterpret_cast<void*>(address)); });

  def_blocking(module, "begin_pool", begin_pool);
  def_blocking(module, "retain_pool",
               [](int64_t device, c10::MempoolId_t pool) { caching_allocator().retain_pool(resolve_device(device_index(device)), pool); });
  def_quick(module, "set_pool_options", [](c10::MempoolId_t pool, bool use_on_oom, bool no_split, uint64_t alloc, uint64_t free) {
    caching_allocator().set_pool_options(pool, {use_on_oom, no_split, pluggable(alloc, free)});
  });
  def_quick(module, "forget_pool_options", [](c10::MempoolId_t pool) { caching_allocator().forget_pool_options(pool); });
  def_quick(module, "plug", [](uint64_t alloc, uint64_t free) { caching_allocator().plug(pluggable(alloc, free)); });
  def_blocking(module, "set_caching", [](bool on) { caching_allocator().set_caching(on); });
  def_quick(module, "caches", [] { return caching_allocator().caches(); });
  def_quick(module, "more_stats", more_stats);
  def_blocking(module, "pool_references", [](int64_t device, c10::MempoolId_t pool) {
    return caching_allocator().pool_references(resolve_device(device_index(device)), pool);
  });
  def_blocking(module, "end_pool", [](int64_t device, c10::MempoolId_t pool) {
    caching_allocator().end_allocate_to_pool(resolve_device(device_index(device)), pool);
  });
  def_blocking(module, "release_pool",
               [](int64_t device, c10::MempoolId_t pool) { caching_allocator().release_pool(resolve_device(device_index(device)), pool); });

  def_quick(module, "allocator_config", [] { return allocator_config(); });
  def_blocking(module, "set_allocator_settings", [](const std::string& text) { set_allocator_settings(text); });

  def_quick(module, "host_stats", host_stats);
  def_quick(module, "reset_accumulated_host_stats", [] { at::getHostAllocator(kDevice)->reset_accumulated_stats(); });
  // As torch.accelerator.empty_host_cache, which torch 2.11 does not have.
  def_blocking(module, "empty_host_cache", [] { at::getHostAllocator(kDevice)->empty_cache(); });
  def_quick(module, "reset_peak_host_stats", [] { at::getHostAllocator(kDevice)->reset_peak_stats(); });

  def_blocking(module, "host_view", [](const at::Tensor& tensor) {
    own_memory(tensor);  // the view would not notice that it moves
    return host_view(tensor);
  });
  def_blocking(module, "has_host_view", [] { return load_driver() && has_host_view(); });
  def_blocking(module, "is_zero_copy", [] { return load_driver() && loaded_driver()->zero_copy; });
  def_quick(module, "check_host_view", [](const at::Tensor& tensor) { check_host_view(tensor); });
}

}  // namespace backplane::bindings
