// bindings/memory.cpp: what the allocators offer beyond torch.accelerator: raw memory, limits, snapshot, private pools, host statistics.
#include <ATen/core/CachingHostAllocator.h>

#include <memory>
#include <thread>

#include "bindings/module.h"
#include "memory/caching_allocator.h"
#include "memory/host_view.h"

namespace backplane::bindings {
namespace {

using Pool = std::pair<uint64_t, uint64_t>;

c10::MempoolId_t pool_id(const Pool& pool) { return {pool.first, pool.second}; }

py::dict block_dict(const c10::CachingDeviceAllocator::BlockInfo& block, size_t address) {
  py::dict d;
  d["address"] = address;
  d["size"] = block.size;
  d["requested_size"] = block.requested_size;
  d["state"] = block.allocated ? "active_allocated" : block.active ? "active_pending_free" : "inactive";
  d["frames"] = py::list();
  return d;
}

// The keys of torch.cuda.memory_snapshot, which PyTorch's memory viewer reads. Stacks are not recorded: frames are empty.
py::list snapshot_segments() {
  std::vector<SegmentInfo> segments;
  {
    const py::gil_scoped_release no_gil;
    segments = caching_allocator().snapshot();
  }
  py::list list;
  for (const auto& segment : segments) {
    py::dict d;
    d["device"] = static_cast<int>(segment.device);
    d["address"] = segment.address;
    d["total_size"] = segment.total_size;
    d["allocated_size"] = segment.allocated_size;
    d["active_size"] = segment.active_size;
    d["requested_size"] = segment.requested_size;
    d["stream"] = reinterpret_cast<uint64_t>(segment.stream);
    d["segment_type"] = segment.is_large ? "large" : "small";
    d["segment_pool_id"] = py::make_tuple(segment.owner_private_pool_id.first, segment.owner_private_pool_id.second);
    d["is_expandable"] = segment.is_expandable;
    d["frames"] = py::list();
    py::list blocks;
    size_t address = segment.address;
    for (const auto& block : segment.blocks) {
      blocks.append(block_dict(block, address));
      address += block.size;
    }
    d["blocks"] = blocks;
    list.append(d);
  }
  return list;
}

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

// Allocations of the calling thread come from the pool until end_pool.
void begin_pool(int64_t device, const Pool& pool) {
  caching_allocator().begin_allocate_to_pool(
      resolve_device(device_index(device)), pool_id(pool),
      [thread = std::this_thread::get_id()](const c10::Stream&) { return std::this_thread::get_id() == thread; });
}

uint64_t raw_alloc(size_t bytes, int64_t stream_id, int64_t device) {
  const auto index = device_index(device);
  check_device(index);
  const c10::Stream stream(c10::Stream::UNSAFE, c10::Device(kDevice, index), stream_id);
  return reinterpret_cast<uint64_t>(caching_allocator().raw_alloc(bytes, stream));
}

}  // namespace

void bind_memory(py::module_& module) {
  def_blocking(module, "raw_alloc", raw_alloc);
  def_blocking(module, "raw_delete", [](uint64_t address) { CachingAllocator::raw_delete(reinterpret_cast<void*>(address)); });
  def_blocking(module, "empty_cache", [] { c10::getDeviceAllocator(kDevice)->emptyCache(); });
  def_blocking(module, "empty_pool", [](const Pool& pool) { c10::getDeviceAllocator(kDevice)->emptyCache(pool_id(pool)); });
  def_blocking(module, "set_memory_fraction", [](double fraction, int64_t device) {
    caching_allocator().set_memory_fraction(fraction, resolve_device(device_index(device)));
  });
  def_blocking(module, "memory_fraction",
               [](int64_t device) { return caching_allocator().memory_fraction(resolve_device(device_index(device))); });
  def_quick(module, "snapshot", snapshot_segments);
  def_quick(module, "block_size", [](uint64_t address) { return CachingAllocator::block_size(reinterpret_cast<void*>(address)); });

  def_blocking(module, "begin_pool", begin_pool);
  def_blocking(module, "end_pool", [](int64_t device, const Pool& pool) {
    caching_allocator().end_allocate_to_pool(resolve_device(device_index(device)), pool_id(pool));
  });
  def_blocking(module, "release_pool", [](int64_t device, const Pool& pool) {
    caching_allocator().release_pool(resolve_device(device_index(device)), pool_id(pool));
  });

  def_quick(module, "allocator_settings", [] { return allocator_settings(); });
  def_blocking(module, "set_allocator_settings", [](const std::string& text) { set_allocator_settings(text); });

  def_quick(module, "host_stats", host_stats);
  def_quick(module, "reset_accumulated_host_stats", [] { at::getHostAllocator(kDevice)->reset_accumulated_stats(); });
  def_quick(module, "reset_peak_host_stats", [] { at::getHostAllocator(kDevice)->reset_peak_stats(); });

  def_blocking(module, "host_view", [](const at::Tensor& tensor) { return host_view(tensor); });
}

}  // namespace backplane::bindings
