// runtime/stream.cpp: stream pools and each thread's current streams.
#include "runtime/stream.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ios>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "runtime/activity.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/overrides.h"
#include "runtime/wait.h"

namespace backplane {
namespace stream_impl {
namespace {

constexpr int kMaxLevels = 8;
constexpr int kSlotsPerLevel = 32;

// Marks a slot whose stream the driver could not create: it shares the default stream.
bp_stream* const kSharesDefault = reinterpret_cast<bp_stream*>(1);

struct Pool {
  std::array<std::array<std::atomic<bp_stream*>, kSlotsPerLevel>, kMaxLevels> slots{};
  std::array<std::atomic<uint32_t>, kMaxLevels> next{};
};

Pool& pool(c10::DeviceIndex device) {
  static auto* pools = new std::array<Pool, kMaxDevices>();
  return (*pools)[static_cast<size_t>(device)];
}

struct Externals {
  std::shared_mutex mutex;
  std::set<std::pair<c10::DeviceIndex, c10::StreamId>> known;
};

Externals& externals() {
  static auto* instance = new Externals();
  return *instance;
}

// See Note [Stream ids].
c10::StreamId encode(int level, int slot) { return static_cast<c10::StreamId>((level << 8 | slot) << 1 | 1); }
bool is_pooled(c10::StreamId id) { return (id & 1) != 0; }

[[noreturn]] void refuse(const c10::Stream& stream) {
  TORCH_CHECK(false, "unknown stream id ", stream.id(), " on ", stream.device(),
              ": no stream of this process has it. Take the numbers of an existing stream, make one by torch.", device_name(),
              ".Stream(), or wrap one of the driver's by ExternalStream.");
}

int levels(const bp_device_properties& p) { return std::min(p.priority_least - p.priority_greatest + 1, kMaxLevels); }

// The number of streams of each priority, so that all priorities together stay within the driver's limit.
int slots_per_level(const bp_device_properties& p) {
  return p.stream_limit <= 0 ? kSlotsPerLevel : std::clamp(p.stream_limit / levels(p), 1, kSlotsPerLevel);
}

struct Place {
  size_t level;
  size_t slot;
};

// Accepts any number: programs make streams from three integers. Throws for one that encode() does not return.
Place place_of(const c10::Stream& stream) {
  const uint64_t bits = static_cast<uint64_t>(stream.id()) >> 1;
  const Place place{static_cast<size_t>(bits >> 8), static_cast<size_t>(bits & 0xff)};
  if (place.level >= kMaxLevels || place.slot >= kSlotsPerLevel) refuse(stream);
  return place;
}

bp_stream* pooled_handle(const c10::Stream& stream) {
  const Place place = place_of(stream);
  bp_stream* handle = pool(stream.device_index()).slots[place.level][place.slot].load(std::memory_order_acquire);
  if (handle == nullptr) refuse(stream);
  return handle == kSharesDefault ? nullptr : handle;
}

// The pooled stream whose handle satisfies `is_it`.
template <class Is>
std::optional<c10::Stream> find_pooled(c10::DeviceIndex device, Is&& is_it) {
  for (int level = 0; level < kMaxLevels; ++level) {
    for (int slot = 0; slot < kSlotsPerLevel; ++slot) {
      bp_stream* handle = pool(device).slots[level][slot].load(std::memory_order_acquire);
      if (handle == nullptr || handle == kSharesDefault || !is_it(handle)) continue;
      return c10::Stream(c10::Stream::UNSAFE, {kDevice, device}, encode(level, slot));
    }
  }
  return std::nullopt;
}

uint64_t native_of(bp_stream* handle, c10::DeviceIndex device) {
  if (open_driver().table.stream_native == nullptr) return reinterpret_cast<uint64_t>(handle);
  uint64_t native = 0;
  call<&bp_driver::stream_native>(device, handle, &native);
  return native;
}

// Creates the slot's stream. Two threads may both create one: the second destroys its own.
void fill_slot(c10::DeviceIndex device, int level, int slot, int priority) {
  auto& place = pool(device).slots[level][slot];
  if (place.load(std::memory_order_acquire) != nullptr) return;
  bp_stream* handle = nullptr;
  const int32_t status = try_call<&bp_driver::stream_create>(device, static_cast<int32_t>(priority), 0u, &handle);
  if (status == BP_UNSUPPORTED) {
    handle = kSharesDefault;
  } else if (status != BP_OK) {
    throw_status(status, "stream_create", device, last_error_text());
  }
  bp_stream* expected = nullptr;
  if (!place.compare_exchange_strong(expected, handle) && handle != kSharesDefault) {
    call_noexcept<&bp_driver::stream_destroy>(device, handle);
  }
}

struct Current {
  c10::StreamId id;
  bp_stream* handle;
};
thread_local Current t_current[kMaxDevices] = {};  // zero is the default stream

void wait_for(c10::DeviceIndex device, const char* call, const std::function<int32_t(uint64_t)>& wait) {
  const int32_t status = interruptible_wait(wait);
  if (status != BP_OK) throw_waited(status, call, device, last_error_text());
}

// Replaces the wait for a device with a capturing stream: waits for all work that runs there.
void synchronize_streams(c10::DeviceIndex device) {
  for (const c10::Stream& stream : known_streams(device)) {
    if (capture_id(stream) == 0) synchronize_stream(stream);
  }
}

}  // namespace
}  // namespace stream_impl

using stream_impl::t_current;

c10::Stream current_stream(c10::DeviceIndex device) {
  device = resolve_device(device);
  return c10::Stream(c10::Stream::UNSAFE, {kDevice, device}, t_current[device].id);
}

bp_stream* current_stream_handle(c10::DeviceIndex device) { return t_current[device].handle; }

c10::Stream default_stream(c10::DeviceIndex device) { return c10::Stream(c10::Stream::DEFAULT, {kDevice, resolve_device(device)}); }

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::Stream previous = current_stream(stream.device_index());
  t_current[stream.device_index()] = {stream.id(), stream_handle(stream)};
  return previous;
}

c10::Stream pool_stream(c10::DeviceIndex device, int priority) {
  device = resolve_device(device);
  const auto& p = device_properties(device);
  priority = std::clamp(priority, p.priority_greatest, p.priority_least);
  const int level = std::min(p.priority_least - priority, stream_impl::levels(p) - 1);
  const int slots = stream_impl::slots_per_level(p);
  for (int tried = 1;; ++tried) {
    const uint32_t turn = stream_impl::pool(device).next[level].fetch_add(1, std::memory_order_relaxed);
    const int slot = static_cast<int>(turn % static_cast<uint32_t>(slots));
    stream_impl::fill_slot(device, level, slot, priority);
    const c10::Stream stream(c10::Stream::UNSAFE, {kDevice, device}, stream_impl::encode(level, slot));
    // A request for another stream skips one that captures, while there is one that does not.
    if (C10_LIKELY(capture_id(stream) == 0) || tried >= slots) return stream;
  }
}

c10::Stream external_stream(uint64_t native, c10::DeviceIndex device) {
  device = resolve_device(device);
  if (native == 0) return default_stream(device);
  if (open_driver().table.stream_from_native == nullptr) {
    const auto own = stream_impl::find_pooled(device, [&](bp_stream* one) { return stream_impl::native_of(one, device) == native; });
    TORCH_CHECK_NOT_IMPLEMENTED(own.has_value(), "0x", std::hex, native, std::dec, " is not a stream of this process, and the driver of ",
                                device_name(),
                                " cannot use streams that others created: it has no stream_from_native. Use a stream of torch.",
                                device_name(), ".Stream(), or synchronize the other one and use the default stream (0).");
    return *own;
  }
  bp_stream* handle = nullptr;
  call<&bp_driver::stream_from_native>(device, native, &handle);
  if (handle == nullptr) return default_stream(device);
  if (const auto own = stream_impl::find_pooled(device, [&](bp_stream* one) { return one == handle; })) return *own;
  const auto id = static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(handle));
  TORCH_CHECK(!stream_impl::is_pooled(id), "stream_from_native of the driver of ", device_name(), " returned the handle ", handle,
              "; a handle must be an even number");
  auto& known = stream_impl::externals();
  const std::unique_lock<std::shared_mutex> lock(known.mutex);
  known.known.emplace(device, id);
  return c10::Stream(c10::Stream::UNSAFE, {kDevice, device}, id);
}

bp_stream* stream_handle(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == kDevice, "expected a stream of ", device_name(), ", got one of ", stream.device());
  check_device(stream.device_index());
  if (stream.id() == 0) return nullptr;
  if (stream_impl::is_pooled(stream.id())) return stream_impl::pooled_handle(stream);
  auto& known = stream_impl::externals();
  const std::shared_lock<std::shared_mutex> lock(known.mutex);
  if (known.known.count({stream.device_index(), stream.id()}) == 0) stream_impl::refuse(stream);
  return reinterpret_cast<bp_stream*>(static_cast<intptr_t>(stream.id()));
}

uint64_t stream_native_handle(const c10::Stream& stream) { return stream_impl::native_of(stream_handle(stream), stream.device_index()); }

int stream_priority(const c10::Stream& stream) {
  stream_handle(stream);
  if (!stream_impl::is_pooled(stream.id())) return 0;
  const auto& p = device_properties(stream.device_index());
  return p.priority_least - static_cast<int>(stream_impl::place_of(stream).level);
}

bool query_stream(const c10::Stream& stream) {
  bp_stream* handle = stream_handle(stream);
  if (!has_context(stream.device_index())) return true;
  if (anything_captures() && capture_id(stream) != 0) refuse_in_capture(stream, "A query of the stream");
  const int32_t status = try_call<&bp_driver::stream_query>(stream.device_index(), handle);
  if (status != BP_OK && status != BP_PENDING) throw_status(status, "stream_query", stream.device_index(), last_error_text());
  if (status == BP_OK) note(ActivityKind::stream_done, stream.device_index(), stream.id());
  return status == BP_OK;
}

void synchronize_stream(const c10::Stream& stream) {
  bp_stream* handle = stream_handle(stream);
  if (!has_context(stream.device_index())) return;  // nothing was ever queued
  refuse_in_capture(stream, "A wait for the stream");
  // Most waits find the work done: ask before building the interruptible one.
  if (try_call<&bp_driver::stream_query>(stream.device_index(), handle) != BP_OK) {
    stream_impl::wait_for(stream.device_index(), "stream_synchronize", [&](uint64_t timeout_ns) {
      return try_call<&bp_driver::stream_synchronize>(stream.device_index(), handle, timeout_ns);
    });
  }
  note(ActivityKind::stream_done, stream.device_index(), stream.id());
}

std::vector<c10::Stream> known_streams(c10::DeviceIndex device) {
  using namespace stream_impl;
  std::vector<c10::StreamId> ids{0};
  for (int level = 0; level < kMaxLevels; ++level) {
    for (int slot = 0; slot < kSlotsPerLevel; ++slot) {
      bp_stream* handle = pool(device).slots[level][slot].load(std::memory_order_acquire);
      if (handle != nullptr && handle != kSharesDefault) ids.push_back(encode(level, slot));
    }
  }
  {
    const std::shared_lock<std::shared_mutex> lock(externals().mutex);
    for (const auto& [of, id] : externals().known) {
      if (of == device) ids.push_back(id);
    }
  }
  std::vector<c10::Stream> streams;
  for (const c10::StreamId id : ids) streams.emplace_back(c10::Stream::UNSAFE, c10::Device(kDevice, device), id);
  return streams;
}

void synchronize_device(c10::DeviceIndex device) {
  device = resolve_device(device);
  if (!has_context(device)) return;
  refuse_in_capture(current_stream(device), "A wait for the device");
  if (C10_UNLIKELY(device_captures(device))) return stream_impl::synchronize_streams(device);
  stream_impl::wait_for(device, "synchronize", [&](uint64_t timeout_ns) { return try_call<&bp_driver::synchronize>(device, timeout_ns); });
  note(ActivityKind::device_done, device, 0);
}

}  // namespace backplane
