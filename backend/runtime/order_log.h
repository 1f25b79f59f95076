// runtime/order_log.h: what orders work and memory, in the sequence in which it happened, for the stream sanitizer. Costs one load while
// off.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace backplane {

// The names by which Python knows them stand in python/torch_backplane/sanitizer.py.
enum class OrderKind : uint8_t {
  record = 0,         // object: the event
  wait = 1,           // the stream waits for object, an event
  event_done = 2,     // the host knows that object, an event, is complete
  stream_done = 3,    // the host knows that the stream's work is complete
  device_done = 4,    // the same of the whole device
  alloc = 5,          // object: address, of the stream; size: bytes
  free = 6,           // object: address
  record_stream = 7,  // object: address of the allocation
  launch = 8,         // a vendor's kernel queues its own work there (NativeLaunch)
};

struct OrderNote {
  OrderKind kind;
  c10::DeviceIndex device;
  c10::StreamId stream;
  uint64_t object;
  uint64_t size;
};

namespace detail {
extern std::atomic<bool> order_log_on;
void append_order(const OrderNote& note);
}  // namespace detail

// Any thread; takes no lock but the log's own.
inline void note_order(OrderKind kind, c10::DeviceIndex device, c10::StreamId stream, uint64_t object = 0, uint64_t size = 0) {
  if (C10_UNLIKELY(detail::order_log_on.load(std::memory_order_relaxed))) detail::append_order({kind, device, stream, object, size});
}

void switch_order_log(bool on);  // begins empty
std::vector<OrderNote> take_order_log();

}  // namespace backplane
