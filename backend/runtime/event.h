// runtime/event.h: a driver event as an owned C++ object, for the core's own ordering; torch.Event uses the guard.
#pragma once

#include <backplane/driver.h>
#include <c10/core/Stream.h>

#include <memory>

namespace backplane {

// Not thread safe as an object; different events are independent. Created lazily at the first record, on the stream's device.
class Event {
 public:
  explicit Event(uint32_t flags = 0) : flags_(flags) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  void record(const c10::Stream& stream);       // throws if the event belongs to another device
  void block(const c10::Stream& stream) const;  // later work of the stream waits; a no-op if never recorded
  bool query() const;                           // true: complete or never recorded
  // Only streams of the same capture can wait for an event whose latest record is in a graph: everything else throws.
  void synchronize() const;                   // interruptible; call without the GIL
  bool wait(uint64_t timeout_ns) const;       // as synchronize(), but does not enter Python; false at the timeout
  double elapsed_ms(const Event& end) const;  // throws unless both are complete and have timing

  // For events between processes: create makes one before its first record (on `device`; a no-op if there is one); adopt takes ownership of
  // one of the driver's.
  void create(c10::DeviceIndex device);
  static Event adopt(bp_event* handle, c10::DeviceIndex device, uint32_t flags);
  bp_event* handle() const { return handle_; }  // NULL: not created yet

  c10::DeviceIndex device() const { return device_; }  // -1: never recorded

 private:
  void check_wait(const c10::Stream& stream) const;
  void refuse_captured(const char* what) const;
  bool poll(uint64_t timeout_ns) const;

  bp_event* handle_ = nullptr;
  c10::DeviceIndex device_ = -1;
  uint32_t flags_;
  uint64_t capture_ = 0;  // the capture that contains the latest record; 0: none
};

// Recycles events without timing, so that recording allocates nothing after warm-up. Thread safe; no lock is held during a driver call. The
// pointer's deleter returns the event to the pool.
struct EventRecycler {
  void operator()(Event* event) const noexcept;
};
using PooledEvent = std::unique_ptr<Event, EventRecycler>;
PooledEvent pooled_event(c10::DeviceIndex device);

}  // namespace backplane
