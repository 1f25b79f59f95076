// memory/pluggable.cpp: calls to a user's functions, and the functions that they may call.
#include "memory/pluggable.h"

#include <backplane/driver_memory.h>
#include <c10/util/Exception.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"

namespace backplane::memory {
namespace pluggable_impl {
namespace {

// A destroyed stream has no object; its memory outlives it.
void* native(c10::DeviceIndex device, c10::StreamId stream) noexcept {
  try {
    return reinterpret_cast<void*>(stream_native_handle(c10::Stream(c10::Stream::UNSAFE, {kDevice, device}, stream)));
  } catch (...) {
    return nullptr;
  }
}

}  // namespace
}  // namespace pluggable_impl

const Pluggable* Pluggable::of(void* alloc, void* free) {
  TORCH_CHECK_VALUE(alloc != nullptr && free != nullptr, "a pluggable allocator needs two functions, got a null pointer");
  static auto* const mutex = new std::mutex();
  static auto* const all = new std::map<std::pair<void*, void*>, std::unique_ptr<const Pluggable>>();
  const std::lock_guard<std::mutex> lock(*mutex);
  auto& place = (*all)[{alloc, free}];
  if (place == nullptr) place.reset(new Pluggable(reinterpret_cast<Alloc>(alloc), reinterpret_cast<Free>(free)));
  return place.get();
}

void* Pluggable::alloc(c10::DeviceIndex device, size_t bytes, c10::StreamId stream) const {
  void* const ptr = alloc_(static_cast<ssize_t>(bytes), device, pluggable_impl::native(device, stream));
  if (reinterpret_cast<uintptr_t>(ptr) % BP_MIN_ALIGNMENT == 0) return ptr;
  free(device, ptr, bytes, stream);
  TORCH_CHECK(false, "the pluggable allocator of ", device_name(), ":", static_cast<int>(device), " returned the address ", ptr, " for ",
              bytes, " bytes; addresses must be multiples of ", BP_MIN_ALIGNMENT);
}

void Pluggable::free(c10::DeviceIndex device, void* ptr, size_t bytes, c10::StreamId stream) const noexcept {
  free_(ptr, static_cast<ssize_t>(bytes), device, pluggable_impl::native(device, stream));
}

}  // namespace backplane::memory

void* backplane_driver_alloc(ssize_t size, int device) {
  try {
    const auto index = static_cast<c10::DeviceIndex>(device);
    backplane::check_device(index);
    uint64_t address = 0;
    const int32_t status = backplane::driver_alloc(index, static_cast<uint64_t>(size), 0, &address);
    if (status == BP_OK) return reinterpret_cast<void*>(address);
    if (status != BP_OUT_OF_MEMORY) backplane::log_status(status, "alloc", index, backplane::last_error_text());
  } catch (const std::exception& error) {
    TORCH_WARN("backplane_driver_alloc: ", error.what());
  }
  return nullptr;
}

void backplane_driver_free(void* ptr, int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  if (ptr == nullptr || backplane::driver_if_open() == nullptr) return;
  backplane::call_noexcept<&bp_driver::synchronize>(index, BP_NO_TIMEOUT);
  backplane::call_noexcept<&bp_driver::free>(index, reinterpret_cast<uint64_t>(ptr));
}
