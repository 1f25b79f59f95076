// driver.cpp: the driver of the imaginary chip: acme.h behind bp_driver. It has streams and events, and no optional group: the chip runs no
// functions of the host's, and the host does not look into its memory.
#include <backplane/driver/cxx/driver.hpp>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "acme.h"

namespace {

using backplane::driver::Error;

constexpr uint64_t kMemory = 4ull << 30;

class Acme : public backplane::driver::Driver<Acme> {
 public:
  explicit Acme(const backplane::driver::Host& host) : Driver(host) {
    backplane::driver::Options options(host.config());
    devices_ = static_cast<int32_t>(options.integer("devices", 2, 0, 16));
    options.finish();
  }

  ~Acme() {
    for (const auto& [stream, device] : streams_) acme_queue_destroy(queue(stream));
    for (const auto& [address, device] : memory_) acme_free(reinterpret_cast<void*>(address));
  }

  void device_count(int32_t* out) { *out = devices_; }
  void device_properties(int32_t device, bp_device_properties* out) {
    check(device);
    std::strcpy(out->name, "Acme");
    out->total_memory = out->max_allocation = kMemory;
    out->alignment = BP_MIN_ALIGNMENT;
  }
  void open() {}

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    check(device);
    refuse(flags);
    void* const memory = bytes > kMemory ? nullptr : acme_alloc(bytes);
    if (memory == nullptr) throw Error(BP_OUT_OF_MEMORY, "acme_alloc: no room for " + std::to_string(bytes) + " bytes");
    *out = reinterpret_cast<uint64_t>(memory);
    const std::lock_guard<std::mutex> lock(mutex_);
    memory_.emplace(*out, device);
  }
  void free(int32_t device, uint64_t address) {
    check(device);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = memory_.find(address);
      if (found == memory_.end() || found->second != device) {
        throw Error(BP_INVALID_ARGUMENT, "free: no memory of the device begins at this address");
      }
      memory_.erase(found);
    }
    acme_free(reinterpret_cast<void*>(address));
  }
  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    refuse(flags);
    void* const memory = bytes > kMemory ? nullptr : acme_alloc(bytes);
    if (memory == nullptr) throw Error(BP_OUT_OF_MEMORY, "acme_alloc: no room for " + std::to_string(bytes) + " bytes");
    *out = memory;
  }
  void host_free(void* memory) { acme_free(memory); }

  int32_t synchronize(int32_t device, uint64_t timeout_ns) {
    check(device);
    std::deque<Fence> fences;
    const auto mark = [&fences](acme_queue* queue) {
      if (!acme_queue_idle(queue)) acme_fence_record(queue, fences.emplace_back().fence);
    };
    mark(nullptr);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& [stream, owner] : streams_) {
        if (owner == device) mark(queue(stream));
      }
    }
    const backplane::driver::Deadline deadline(timeout_ns);
    for (const Fence& each : fences) {
      if (!acme_fence_wait(each.fence, deadline.left_ns())) return fail(BP_TIMEOUT, "a queue has not come to its end");
    }
    return BP_OK;
  }

  // ---- streams

  void stream_create(int32_t device, int32_t, uint32_t flags, bp_stream** out) {
    check(device);
    refuse(flags);
    *out = reinterpret_cast<bp_stream*>(acme_queue_create());
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.emplace(*out, device);
  }
  void stream_destroy(int32_t, bp_stream* stream) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      streams_.erase(stream);
    }
    acme_queue_destroy(queue(stream));
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    check(device);
    return acme_queue_idle(queue(stream)) ? BP_OK : BP_PENDING;
  }
  int32_t stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    check(device);
    if (acme_queue_idle(queue(stream))) return BP_OK;
    Fence fence;
    acme_fence_record(queue(stream), fence.fence);
    return acme_fence_wait(fence.fence, timeout_ns) ? BP_OK : fail(BP_TIMEOUT, "the queue has not come to its end");
  }
  void stream_native(int32_t, bp_stream* stream, uint64_t* out) {
    *out = reinterpret_cast<uint64_t>(stream ? queue(stream) : acme_default_queue());
  }

  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t, uint64_t src, int32_t, uint64_t bytes, uint32_t flags) {
    check(device);
    refuse(flags);
    acme_copy(queue(stream), reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes);
    stream_synchronize(device, stream, BP_NO_TIMEOUT);
  }
  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t, uint64_t src, int32_t, uint64_t bytes, uint32_t flags) {
    check(device);
    refuse(flags);
    acme_copy(queue(stream), reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes);
  }
  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    check(device);
    refuse(flags);
    acme_fill(queue(stream), reinterpret_cast<void*>(dst), pattern, pattern_size, count);
  }

  // ---- events

  void event_create(int32_t device, uint32_t flags, bp_event** out) {
    check(device);
    refuse(flags & ~(BP_EVENT_TIMING | BP_EVENT_BLOCKING));
    auto* event = new Event;
    event->has_time = (flags & BP_EVENT_TIMING) != 0;
    *out = reinterpret_cast<bp_event*>(event);
  }
  void event_destroy(int32_t, bp_event* event) { delete of(event); }
  void event_record(int32_t, bp_stream* stream, bp_event* event, uint32_t flags) {
    refuse(flags);
    of(event)->is_recorded = true;
    acme_fence_record(queue(stream), of(event)->fence);
  }
  int32_t event_query(int32_t, bp_event* event) { return acme_fence_wait(of(event)->fence, 0) ? BP_OK : BP_PENDING; }
  int32_t event_synchronize(int32_t, bp_event* event, uint64_t timeout_ns) {
    return acme_fence_wait(of(event)->fence, timeout_ns) ? BP_OK : fail(BP_TIMEOUT, "the event has not completed");
  }
  void stream_wait(int32_t, bp_stream* stream, bp_event* event) { acme_fence_wait_on_queue(queue(stream), of(event)->fence); }
  int32_t event_elapsed(int32_t, bp_event* start, bp_event* end, int64_t* ns) {
    for (const Event* event : {of(start), of(end)}) {
      if (!event->has_time || !event->is_recorded)
        throw Error(BP_INVALID_ARGUMENT, "an event without BP_EVENT_TIMING or a record has no time");
    }
    if (!acme_fence_wait(of(start)->fence, 0) || !acme_fence_wait(of(end)->fence, 0)) return BP_PENDING;
    *ns = acme_fence_time(of(end)->fence) - acme_fence_time(of(start)->fence);
    return BP_OK;
  }

 private:
  struct Fence {
    acme_fence* const fence = acme_fence_create();
    ~Fence() { acme_fence_destroy(fence); }
  };
  struct Event : Fence {
    std::atomic<bool> is_recorded{false};
    bool has_time = false;
  };
  static Event* of(bp_event* event) { return reinterpret_cast<Event*>(event); }
  static acme_queue* queue(bp_stream* stream) { return reinterpret_cast<acme_queue*>(stream); }
  static void refuse(uint32_t flags) {
    if (flags != 0) throw Error(BP_INVALID_ARGUMENT, "flags must be 0");
  }
  void check(int32_t device) const {
    if (device < 0 || device >= devices_) throw Error(BP_INVALID_DEVICE, "no device of that index");
  }

  int32_t devices_;
  std::mutex mutex_;
  std::map<bp_stream*, int32_t> streams_;  // of which device
  std::map<uint64_t, int32_t> memory_;
};

}  // namespace

BP_DEFINE_DRIVER(Acme)
