// memory/caching_allocator.cpp: the allocator as c10 sees it; DeviceCache does the work of each device.
#include "memory/caching_allocator.h"

#include <c10/core/impl/COW.h>

#include <algorithm>
#include <memory>

#include "memory/alloc_config.h"
#include "memory/block_index.h"
#include "memory/copy_bytes.h"
#include "memory/device_cache.h"
#include "memory/ipc.h"
#include "runtime/activity.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"

namespace backplane {

namespace caching_allocator_impl {
namespace {

void report_to_profiler(void* ptr, int64_t change, const memory::Usage& usage, c10::DeviceIndex device) {
  c10::reportMemoryUsageToProfiler(ptr, change, usage.allocated, usage.reserved, c10::Device(kDevice, device));
}

StackContext stack(const std::atomic<const HistorySettings*>& history, HistorySettings::Stacks wanted) {
  const HistorySettings* settings = history.load(std::memory_order_acquire);
  return C10_LIKELY(settings == nullptr) ? nullptr : settings->stack(wanted);
}

void deleter(void* ptr) { CachingAllocator::raw_delete(ptr); }

c10::DeviceIndex device_of(const void* ptr, const memory::Block* block) {
  if (block != nullptr) return block->segment->owner->device();
  const c10::DeviceIndex device = device_of_pointer(ptr);
  return device < 0 ? current_device() : device;
}

}  // namespace
}  // namespace caching_allocator_impl

CachingAllocator::CachingAllocator() = default;
CachingAllocator::~CachingAllocator() = default;

memory::DeviceCache* CachingAllocator::device_memory_if_used(c10::DeviceIndex device) const {
  check_device(device);
  return devices_[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

memory::DeviceCache& CachingAllocator::device_memory(c10::DeviceIndex device) {
  auto& place = devices_[static_cast<size_t>(device)];
  memory::DeviceCache* found = place.load(std::memory_order_acquire);
  if (C10_LIKELY(found != nullptr)) return *found;
  check_device(device);
  const std::lock_guard<std::mutex> lock(create_mutex_);
  found = place.load(std::memory_order_acquire);
  if (found == nullptr) {
    auto made = std::make_unique<memory::DeviceCache>(*this, device, history_.load());
    limit_to(*made, memory::alloc_config().memory_fraction);  // throws for an invalid setting
    found = made.release();                                   // lives until the end of the process, as tensors may
    place.store(found, std::memory_order_release);
  }
  return *found;
}

c10::DataPtr CachingAllocator::allocate(size_t bytes) {
  const c10::DeviceIndex device = current_device();
  if (C10_UNLIKELY(bytes == 0)) {
    check_device(device);
    return {nullptr, nullptr, &caching_allocator_impl::deleter, c10::Device(kDevice, device)};
  }
  void* ptr = allocate_for(bytes, current_stream(device));
  return {ptr, ptr, &caching_allocator_impl::deleter, c10::Device(kDevice, device)};
}

c10::DeleterFnPtr CachingAllocator::raw_deleter() const { return &caching_allocator_impl::deleter; }

void* CachingAllocator::raw_alloc(size_t bytes, const c10::Stream& stream) {
  stream_handle(stream);  // raises for a stream that does not exist
  return bytes == 0 ? nullptr : allocate_for(bytes, stream);
}

void* CachingAllocator::allocate_for(size_t bytes, const c10::Stream& stream) {
  open_driver();  // a cached block is invalid in a forked child, and after close
  const c10::DeviceIndex device = stream.device_index();
  memory::Usage usage;
  void* ptr = device_memory(device)
                  .allocate(bytes, stream, caching_allocator_impl::stack(history_, HistorySettings::Stacks::state), &usage)
                  ->pointer();
  caching_allocator_impl::report_to_profiler(ptr, static_cast<int64_t>(usage.block), usage, device);
  note(ActivityKind::alloc, device, stream.id(), reinterpret_cast<uint64_t>(ptr), usage.block);
  return ptr;
}

void CachingAllocator::raw_delete(void* ptr) {
  if (ptr == nullptr || driver_if_open() == nullptr) return;  // after a fork, or once the driver is closed, there is nothing to free
  memory::Block* block = memory::BlockIndex::instance().find(ptr);
  TORCH_CHECK(block != nullptr, "cannot free ", ptr, ": it is not an allocation of ", device_name());
  memory::DeviceCache& owner = *block->segment->owner;
  memory::Usage usage;
  note(ActivityKind::free, owner.device(), 0, reinterpret_cast<uint64_t>(ptr));  // before another thread can get the memory
  owner.free(block, caching_allocator_impl::stack(owner.source().history_, HistorySettings::Stacks::all), &usage);
  caching_allocator_impl::report_to_profiler(ptr, -static_cast<int64_t>(usage.block), usage, owner.device());
}

size_t CachingAllocator::block_size(const void* ptr) {
  const memory::Block* block = memory::BlockIndex::instance().find(ptr);
  return block == nullptr ? 0 : block->size;
}

c10::MempoolId_t CachingAllocator::pool_of(const void* ptr) {
  const memory::Block* block = memory::BlockIndex::instance().find(ptr);
  return block == nullptr ? c10::MempoolId_t{0, 0} : block->segment->arena->pool().id;
}

bool CachingAllocator::are_neighbours(const void* a, const void* b, const c10::Stream& stream) {
  const memory::Block* first = memory::BlockIndex::instance().find(a);
  const memory::Block* second = memory::BlockIndex::instance().find(b);
  if (first == nullptr || second == nullptr || first->segment != second->segment) return false;
  const memory::Segment& segment = *first->segment;
  return segment.chunk == 0 && segment.arena->stream() == stream.id() && segment.owner->device() == stream.device_index();
}

// Blocks are multiples of 512 bytes, so a length that the driver's copies do not support is rounded up inside both.
void CachingAllocator::copy_data(void* dest, const void* src, size_t bytes) const {
  namespace impl = caching_allocator_impl;
  if (bytes == 0) return;
  memory::Block* from = memory::BlockIndex::instance().find(src);
  const memory::Block* to = memory::BlockIndex::instance().find(dest);
  const auto src_device = impl::device_of(src, from);
  const auto dest_device = impl::device_of(dest, to);
  const size_t unit = std::max<uint32_t>(device_properties(dest_device).copy_alignment, 1);
  if (bytes % unit != 0 && from != nullptr && to != nullptr) bytes = std::min({(bytes + unit - 1) / unit * unit, from->size, to->size});
  const c10::Stream stream = current_stream(dest_device);
  if (src_device != dest_device) {
    Event ready;  // after the source's work so far
    ready.record(current_stream(src_device));
    ready.block(stream);
  }
  copy_bytes({reinterpret_cast<uint64_t>(dest), dest_device}, {reinterpret_cast<uint64_t>(src), src_device}, bytes, stream, /*async=*/true);
  // The source may be freed before the copy has run.
  if (from != nullptr) from->segment->owner->record_stream(from, stream);
}

bool CachingAllocator::initialized() { return driver_if_open() != nullptr; }

void CachingAllocator::emptyCache(c10::MempoolId_t pool) {
  if (driver_if_open() == nullptr) return;
  const StackContext stack = caching_allocator_impl::stack(history_, HistorySettings::Stacks::all);
  for (auto& place : devices_) {
    if (memory::DeviceCache* owner = place.load(std::memory_order_acquire)) owner->empty_cache(pool, stack);
  }
}

void CachingAllocator::recordStream(const c10::DataPtr& data, c10::Stream stream) {
  stream_handle(stream);                     // raises for a stream that does not exist: the free that queries it later cannot raise
  const c10::DataPtr& ptr = unshared(data);  // memory that other processes also use is wrapped
  if (ptr.get() == nullptr || driver_if_open() == nullptr) return;
  if (ptr.get_deleter() == &BorrowedMemory::release) return static_cast<BorrowedMemory*>(ptr.get_context())->record_stream(stream);
  const bool is_ours = ptr.get_deleter() == &caching_allocator_impl::deleter;
  if (!is_ours && !c10::impl::cow::is_cow_data_ptr(ptr)) return;
  const void* const address = is_ours ? ptr.get_context() : ptr.get();  // lazily cloned storages share a block
  memory::Block* block = memory::BlockIndex::instance().find(address);
  if (block == nullptr) return;
  block->segment->owner->record_stream(block, stream);
  note(ActivityKind::record_stream, stream.device_index(), stream.id(), reinterpret_cast<uint64_t>(address));
}

DeviceStats CachingAllocator::getDeviceStats(c10::DeviceIndex device) {
  memory::DeviceCache* owner = device_memory_if_used(device);
  return owner == nullptr ? DeviceStats() : owner->statistics();
}

void CachingAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  if (memory::DeviceCache* owner = device_memory_if_used(device)) owner->reset_accumulated();
}

void CachingAllocator::resetPeakStats(c10::DeviceIndex device) {
  if (memory::DeviceCache* owner = device_memory_if_used(device)) owner->reset_peak();
}

std::pair<size_t, size_t> CachingAllocator::getMemoryInfo(c10::DeviceIndex device) {
  check_device(device);
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  if (driver_memory_info(device, &free_bytes, &total_bytes)) return {free_bytes, total_bytes};
  total_bytes = device_properties(device).total_memory;
  memory::DeviceCache* owner = device_memory_if_used(device);
  const uint64_t reserved = owner == nullptr ? 0 : owner->reserved();
  return {total_bytes - std::min(total_bytes, reserved), total_bytes};
}

void CachingAllocator::set_memory_fraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1, "memory fraction must be in [0, 1], got ", fraction);
  check_device(device);
  limit_to(device_memory(device), fraction);
}

void CachingAllocator::limit_to(memory::DeviceCache& owner, double fraction) {
  if (fraction == 1) {
    owner.set_limit(1, 0);
    return;
  }
  const c10::DeviceIndex device = owner.device();
  uint64_t free_bytes = 0;
  uint64_t total = 0;
  if (!driver_memory_info(device, &free_bytes, &total)) total = device_properties(device).total_memory;
  TORCH_CHECK(total != 0, "the driver does not report how much memory ", device_name(), ":", static_cast<int>(device),
              " has, so a fraction of it cannot be set");
  owner.set_limit(fraction, total);
}

void CachingAllocator::limit_all(double fraction) {
  for (auto& place : devices_) {
    if (memory::DeviceCache* owner = place.load(std::memory_order_acquire)) limit_to(*owner, fraction);
  }
}

double CachingAllocator::memory_fraction(c10::DeviceIndex device) {
  memory::DeviceCache* owner = device_memory_if_used(device);
  return owner == nullptr ? 1 : owner->fraction();
}

std::vector<SegmentInfo> CachingAllocator::snapshot(std::vector<std::vector<HistoryEvent>>* events) {
  std::vector<SegmentInfo> segments;
  if (events != nullptr) events->resize(devices_.size());
  for (size_t i = 0; i < devices_.size(); ++i) {
    memory::DeviceCache* owner = devices_[i].load(std::memory_order_acquire);
    if (owner != nullptr) owner->snapshot(segments, events == nullptr ? nullptr : &(*events)[i]);
  }
  return segments;
}

void CachingAllocator::record_history(const std::optional<HistorySettings>& settings, bool clear) {
  const std::lock_guard<std::mutex> lock(create_mutex_);
  const HistorySettings* kept = nullptr;
  if (settings) kept = histories_.emplace_back(std::make_unique<HistorySettings>(*settings)).get();
  history_.store(kept, std::memory_order_release);
  for (auto& place : devices_) {
    if (memory::DeviceCache* owner = place.load(std::memory_order_acquire)) owner->record_history(kept, clear);
  }
}

void CachingAllocator::attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(create_mutex_);
  auto all = observers_ == nullptr ? std::vector<OutOfMemoryObserver>() : *observers_;
  all.push_back(std::move(observer));
  observers_ = std::make_shared<const std::vector<OutOfMemoryObserver>>(std::move(all));
}

void CachingAllocator::notify_observers(c10::DeviceIndex device, size_t asked, size_t total, size_t free) {
  std::shared_ptr<const std::vector<OutOfMemoryObserver>> observers;
  {
    const std::lock_guard<std::mutex> lock(create_mutex_);
    observers = observers_;
  }
  if (observers == nullptr) return;
  for (const auto& observer : *observers) observer(device, asked, total, free);
}

bool CachingAllocator::first_caching() const {
  Caching now = Caching::unread;
  const Caching wanted = env("NO_MEMORY_CACHING").value_or("0") == "0" ? Caching::on : Caching::off;
  return (caching_.compare_exchange_strong(now, wanted) ? wanted : now) == Caching::on;
}

void CachingAllocator::set_caching(bool on) {
  if (caching_.exchange(on ? Caching::on : Caching::off) != Caching::off && !on) emptyCache();
}

void CachingAllocator::plug(const memory::Pluggable* functions) {
  const std::lock_guard<std::mutex> lock(create_mutex_);
  for (const auto& place : devices_) {
    TORCH_CHECK(place.load() == nullptr, "The allocator of ", device_name(),
                " cannot be changed after the first allocation. Change it before the first tensor is made");
  }
  plugged_.store(functions, std::memory_order_release);
}

void CachingAllocator::set_pool_options(c10::MempoolId_t pool, const PoolOptions& options) {
  const std::lock_guard<std::mutex> lock(create_mutex_);
  pool_options_[pool] = options;
}

void CachingAllocator::forget_pool_options(c10::MempoolId_t pool) {
  const std::lock_guard<std::mutex> lock(create_mutex_);
  pool_options_.erase(pool);
}

PoolOptions CachingAllocator::pool_options(c10::MempoolId_t pool) {
  const std::lock_guard<std::mutex> lock(create_mutex_);
  const auto found = pool_options_.find(pool);
  return found == pool_options_.end() ? PoolOptions() : found->second;
}

void CachingAllocator::begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                              std::function<bool(const c10::Stream&)> filter) {
  check_device(device);
  device_memory(device).begin_allocate_to_pool(pool, std::move(filter), pool_options(pool));
}

void CachingAllocator::retain_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  check_device(device);
  device_memory(device).retain_pool(pool, pool_options(pool));
}

void CachingAllocator::end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  check_device(device);
  device_memory(device).end_allocate_to_pool(pool);
}

void CachingAllocator::release_pool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  check_device(device);
  device_memory(device).release_pool(pool);
}

int CachingAllocator::pool_references(c10::DeviceIndex device, c10::MempoolId_t pool) {
  memory::DeviceCache* owner = device_memory_if_used(device);
  return owner == nullptr ? 0 : owner->pool_references(pool);
}

void CachingAllocator::finish_captured_frees(c10::DeviceIndex device) {
  if (memory::DeviceCache* owner = device_memory_if_used(device)) owner->finish_later_frees();
}

size_t CachingAllocator::fraction_rejections(c10::DeviceIndex device) {
  memory::DeviceCache* owner = device_memory_if_used(device);
  return owner == nullptr ? 0 : owner->fraction_rejections();
}

void* CachingAllocator::segment_alloc(c10::DeviceIndex device, size_t bytes) {
  uint64_t address = 0;
  const int32_t status = driver_alloc(device, bytes, 0, &address);
  if (status == BP_OUT_OF_MEMORY) return nullptr;
  if (status != BP_OK) throw_status(status, "alloc", device, last_error_text());
  return reinterpret_cast<void*>(address);
}

void CachingAllocator::segment_free(c10::DeviceIndex device, void* ptr, size_t) noexcept {
  call_noexcept<&bp_driver::free>(device, reinterpret_cast<uint64_t>(ptr));
}

namespace caching_allocator_impl {
namespace {

CachingAllocator& core_allocator() {
  static auto* allocator = new CachingAllocator();
  return *allocator;
}

const bool registered = [] {
  c10::SetAllocator(kDevice, &core_allocator(), 0);
  return true;
}();

}  // namespace
}  // namespace caching_allocator_impl

CachingAllocator& caching_allocator() {
  auto* found = dynamic_cast<CachingAllocator*>(c10::GetAllocator(kDevice));
  TORCH_CHECK(found != nullptr, "the allocator registered for ", device_name(),
              " is not derived from backplane::CachingAllocator, so it has no snapshot, no memory fraction and no settings");
  return *found;
}

void set_allocator_settings(const std::string& text) {
  memory::set_alloc_config(text);
  if (text.find("per_process_memory_fraction") != std::string::npos) {
    caching_allocator().limit_all(memory::alloc_config().memory_fraction);
  }
}

}  // namespace backplane
