// runtime/activity.h: the one channel that reports what happens on streams and to memory, in order, and the operator that does it. The
// watchdog, the stream sanitizer's log and the profiler subscribe to it. Without a subscriber a call costs one predictable branch.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/capture.h"

namespace backplane {

// The first nine order work and memory; Python knows them by name (python/torch_backplane/sanitizer.py).
enum class ActivityKind : uint8_t {
  record = 0,          // object: the event
  wait = 1,            // the stream waits for object, an event
  event_done = 2,      // the host knows that object, an event, is complete
  stream_done = 3,     // the host knows that the stream's work is complete
  device_done = 4,     // the host knows that all work of the device is complete
  alloc = 5,           // object: address, owned by the stream; size: bytes
  free = 6,            // object: address
  record_stream = 7,   // object: address of the allocation
  launch = 8,          // a vendor's kernel begins to queue its own work on the stream (NativeLaunch)
  queued = 9,          // work was queued on the stream; name: "kernel", "copy", "graph"; size: bytes, where known;
                       // object: the capture that records it (runtime/capture.h); 0: it runs
  launch_failed = 10,  // the work that `launch` announced was not queued, because of an exception
};

struct Activity {
  ActivityKind kind;
  c10::DeviceIndex device;
  c10::StreamId stream;
  uint64_t object;
  uint64_t size;
  const char* name;  // of `queued`, else NULL; valid only during the call
};

// Called on the acting thread, with no lock of the core held except the allocator's. Only a subscriber to `queued` may throw.
using ActivitySubscriber = void (*)(const Activity& activity);

namespace detail {
extern std::atomic<bool> wants_activity;
void publish(const Activity& activity);
}  // namespace detail

// Whether there is a subscriber.
inline bool activity_wanted() { return C10_UNLIKELY(detail::wants_activity.load(std::memory_order_relaxed)); }

// Any thread. Concurrent activity may or may not be reported.
void subscribe(ActivitySubscriber subscriber);
void unsubscribe(ActivitySubscriber subscriber);

inline void note(ActivityKind kind, c10::DeviceIndex device, c10::StreamId stream, uint64_t object = 0, uint64_t size = 0) {
  if (activity_wanted()) detail::publish({kind, device, stream, object, size, nullptr});
}

// Call after work was queued on the stream. With LAUNCH_BLOCKING it waits for the work and throws its error.
inline void note_queued(const c10::Stream& stream, const char* name, uint64_t bytes = 0) {
  if (activity_wanted()) detail::publish({ActivityKind::queued, stream.device_index(), stream.id(), capture_id(stream), bytes, name});
}

// An operator that a thread runs.
struct RunningOperator {
  std::string name;  // "aten::linear", "aten::mean.dim", or a node of autograd, "AddmmBackward0"
  uint64_t serial;   // number of the call in this process
};

// The operators that enclose the current call, innermost last. Maintained while observe_operators() (aten/observe_operators.h) is on.
std::vector<RunningOperator>& running_operators();

}  // namespace backplane
