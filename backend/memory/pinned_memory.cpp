// memory/pinned_memory.cpp: pinned memory from the driver, from the host, or from a segment.
#include "memory/pinned_memory.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "memory/alloc_config.h"
#include "runtime/driver.h"
#include "runtime/options.h"

namespace backplane::memory {
namespace pinned_memory_impl {
namespace {

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t page() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// Registering maps pages one by one; threads that touch them first do that in parallel.
void touch(char* memory, size_t bytes, size_t threads) {
  const size_t part = round_up((bytes + threads - 1) / threads, page());
  std::vector<std::thread> workers;
  for (size_t begin = 0; begin < bytes; begin += part) {
    workers.emplace_back([=] {
      for (size_t i = begin; i < std::min(begin + part, bytes); i += page()) static_cast<volatile char*>(memory)[i] = 0;
    });
  }
  for (auto& worker : workers) worker.join();
}

}  // namespace
}  // namespace pinned_memory_impl

int32_t PinnedMemory::alloc(size_t bytes, void** out) {
  const size_t wanted = alloc_config().pinned_segment;
  bool reserve = false;
  if (wanted != 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (cut(bytes, out)) return BP_OK;
    reserve = !segment_ && bytes <= wanted;
  }
  if (!reserve) return alloc_whole(bytes, out);
  void* memory = nullptr;
  const int32_t status = alloc_whole(wanted, &memory);
  if (status != BP_OK) return status;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!segment_) {
      segment_ = Segment{static_cast<char*>(memory), wanted};
      memory = nullptr;
    }
    if (cut(bytes, out)) bytes = 0;
  }
  if (memory != nullptr) free(memory);  // another thread was faster
  return bytes == 0 ? BP_OK : alloc_whole(bytes, out);
}

int32_t PinnedMemory::free(void* ptr) {
  bool registered = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto* const place = static_cast<char*>(ptr);
    if (segment_ && place >= segment_->begin && place < segment_->begin + segment_->size) {
      if (--segment_->pieces == 0) segment_->used = 0;
      return BP_OK;
    }
    registered = registered_.erase(ptr) != 0;
  }
  const bp_driver& table = open_driver().table;
  if (!registered) return table.host_free(table.self, ptr);
  const int32_t status = table.host_unregister(table.self, ptr);
  std::free(ptr);
  return status;
}

bool PinnedMemory::cut(size_t bytes, void** out) {
  constexpr size_t kAlignment = 4096;
  if (!segment_ || segment_->size - segment_->used < bytes) return false;
  *out = segment_->begin + segment_->used;
  segment_->used = std::min(segment_->used + pinned_memory_impl::round_up(bytes, kAlignment), segment_->size);
  ++segment_->pieces;
  return true;
}

int32_t PinnedMemory::alloc_whole(size_t bytes, void** out) {
  const AllocConfig& config = alloc_config();
  if (config.pinned_register) return alloc_registered(bytes, config.pinned_register_threads, out);
  return detail::invoke<&bp_driver::host_alloc>(open_driver(), uint64_t{bytes}, 0u, out);
}

int32_t PinnedMemory::alloc_registered(size_t bytes, size_t threads, void** out) {
  const bp_driver& table = open_driver().table;
  check_host_register(open_driver());
  const size_t whole = pinned_memory_impl::round_up(bytes, pinned_memory_impl::page());
  void* const memory = std::aligned_alloc(pinned_memory_impl::page(), whole);
  if (memory == nullptr) return BP_OUT_OF_MEMORY;
  int32_t status = BP_OK;
  try {
    if (threads > 1) pinned_memory_impl::touch(static_cast<char*>(memory), whole, threads);
    status = table.host_register(table.self, memory, whole);
    if (status == BP_OK) {
      const std::lock_guard<std::mutex> lock(mutex_);
      registered_.insert(memory);
    }
  } catch (...) {  // no thread, or no memory for the list
    std::free(memory);
    throw;
  }
  if (status == BP_OK) {
    *out = memory;
  } else {
    std::free(memory);
  }
  return status;
}

}  // namespace backplane::memory
