// drivers/opencl/runtime.h: the context, its devices, and their queues, which are the streams.
//
// One context spans the devices of an instance, so that memory, events and copies are good on each of them. It is made by the first entry
// that names a device. A queue keeps the event of its last command: in an in-order queue that one is complete when all are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <backplane/driver/cxx/wait.hpp>

#include "library.h"
#include "survey.h"

namespace backplane::driver::opencl {

/// A reference to an event of OpenCL's; may be empty.
class Event {
 public:
  Event() = default;
  /// Takes the reference over.
  Event(const Api& api, cl_event event) : api_(&api), event_(event) {}
  Event(const Event& other) : api_(other.api_), event_(other.event_) {
    if (event_) api_->clRetainEvent(event_);
  }
  Event(Event&& other) noexcept : api_(other.api_), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event other) noexcept {
    std::swap(api_, other.api_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_) api_->clReleaseEvent(event_);
  }
  cl_event get() const { return event_; }
  explicit operator bool() const { return event_ != nullptr; }

 private:
  const Api* api_ = nullptr;
  cl_event event_ = nullptr;
};

class Device;

/// A stream: an in-order queue. Thread safe.
class Queue {
 public:
  enum class Owner { driver, other };
  Queue(Device& device, cl_command_queue queue, Owner owner)
      : device_(device), queue_(queue), owner_(owner), exposed_(owner == Owner::other) {}
  /// Waits for its work.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Device& device() const { return device_; }
  cl_command_queue native() const { return queue_; }
  /// Others may queue work from here on, of which this class knows nothing: it then asks the queue itself, by markers.
  void expose() { exposed_.store(true, std::memory_order_relaxed); }

  /// Queues a command, `enqueue(queue, &event)`, and sees that it is begun. Throws Error; the device's sticky one first.
  template <class Enqueue>
  Event submit(const char* call, Enqueue&& enqueue);
  /// While it lives, other threads queue nothing here, and what this one queues is begun at its end at the latest.
  class Batch {
   public:
    explicit Batch(Queue& of) : of_(of), lock_(of.mutex_) { ++of_.batches_; }
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    Queue& of_;
    const std::lock_guard<std::recursive_mutex> lock_;
  };
  Event marker();
  void wait_for(const Event& event);
  void callback(void (*fn)(void* arg, int32_t status), void* arg);

  /// BP_OK, BP_PENDING or the device's sticky status.
  int32_t query();
  int32_t wait(const Deadline& deadline);

 private:
  Event last();

  Device& device_;
  const cl_command_queue queue_;
  const Owner owner_;
  std::atomic<bool> exposed_;
  std::recursive_mutex mutex_;
  int batches_ = 0;
  Event last_;
};

struct Usm {
#define BP_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  BP_OPENCL_FUNCTIONS_USM(BP_POINTER)
#undef BP_POINTER
};

/// The devices' context.
class Context {
 public:
  Context(const Api& api, const std::vector<DeviceInfo>& devices);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Api& api;
  cl_context get() const { return context_; }
  cl_device_id device(size_t index) const { return devices_[index]; }
  const Usm& usm() const { return usm_; }

 private:
  cl_context context_ = nullptr;
  std::vector<cl_device_id> devices_;
  Usm usm_;
};

class Device {
 public:
  Device(Context& context, int32_t index, const DeviceInfo& info, cl_properties throttle);

  Context& context() const { return context_; }
  const Api& api() const { return context_.api; }
  int32_t index() const { return index_; }
  const DeviceInfo& info() const { return info_; }
  cl_device_id id() const { return context_.device(static_cast<size_t>(index_)); }

  Queue& default_queue() const { return *default_; }
  Queue* create_queue(int32_t priority);
  /// Waits for its work.
  void destroy_queue(bp_stream* stream);
  /// NULL: the default one. Throws for what is no stream of this device.
  std::shared_ptr<Queue> stream(bp_stream* stream) const;
  /// The stream of a native queue, NULL for the default one; a new one for a queue of others, kept until the end.
  bp_stream* stream_of(cl_command_queue native);
  int32_t synchronize(const Deadline& deadline);
  /// Waits whatever the device's state is.
  void finish() noexcept;

  /// Throws the sticky error, if there is one.
  void check() const {
    if (sticky_.load(std::memory_order_acquire) != BP_OK) throw_sticky();
  }
  int32_t sticky() const { return sticky_.load(std::memory_order_acquire); }
  void fail(int32_t status, const std::string& why) noexcept;
  /// Of an event: BP_OK, BP_PENDING, or BP_FAULT, which the device keeps.
  int32_t status(const Event& event);
  int32_t wait(const Event& event, const Deadline& deadline);

  /// Keeps account of memory: runtimes promise more than there is.
  void take(uint64_t bytes);
  void give(uint64_t bytes) { used_ -= bytes; }

 private:
  std::shared_ptr<Queue> new_queue(int32_t priority);
  [[noreturn]] void throw_sticky() const;

  Context& context_;
  const int32_t index_;
  const DeviceInfo info_;
  const cl_properties throttle_;
  std::atomic<uint64_t> used_{0};
  std::atomic<int32_t> sticky_{BP_OK};
  mutable std::mutex mutex_;  // of what follows
  std::string why_;
  std::vector<std::shared_ptr<Queue>> queues_;  // all but the default one
  const std::shared_ptr<Queue> default_;
};

template <class Enqueue>
Event Queue::submit(const char* call, Enqueue&& enqueue) {
  std::lock_guard lock(mutex_);
  device_.check();
  cl_event event = nullptr;
  const cl_int code = enqueue(queue_, &event);
  if (code != CL_SUCCESS) {
    const Error error = failure(code, call);
    if (error.status() == BP_DEVICE_LOST) device_.fail(BP_DEVICE_LOST, error.what());
    throw error;
  }
  last_ = Event(device_.api(), event);
  if (batches_ == 0) opencl::check(device_.api().clFlush(queue_), "clFlush");
  return last_;
}

}  // namespace backplane::driver::opencl
