// backplane/driver/cxx/callback.hpp: timed waits, and stream_callback, for runtimes that report the end of work by a callback.
//
// A runtime that offers "call me when this event completes" and a wait without a limit cannot serve an entry with timeout_ns by that wait.
// It serves it by a CallbackWait:
//
//     int32_t stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
//       CallbackWait done;
//       vendor_event event = vendor_enqueue_marker(queue(stream));
//       vendor_on_complete(event, [](vendor_event, int failed, void* arg) { CallbackWait::complete(arg, failed ? BP_FAULT : BP_OK); },
//                          done.arg());
//       return done.wait(timeout_ns);                 // BP_TIMEOUT: the callback may still come, and finds what it needs
//     }
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "../../driver.h"
#include "wait.hpp"

namespace backplane::driver {

/// One end of work that a callback reports and any thread waits for. What the callback needs lives as long as the callback may come, also
/// after the CallbackWait itself is gone.
class CallbackWait {
 public:
  /// The callback's user data. Each call makes one, for one call of complete.
  void* arg() const { return new std::shared_ptr<State>(state_); }

  /// From the callback, or where registering the callback has failed. The first status counts.
  static void complete(void* arg, int32_t status) noexcept {
    const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(arg));
    {
      std::lock_guard lock((*state)->mutex);
      if ((*state)->status == BP_PENDING) (*state)->status = status;
    }
    (*state)->changed.notify_all();
  }

  /// BP_PENDING, or the status that was reported.
  int32_t query() const {
    std::lock_guard lock(state_->mutex);
    return state_->status;
  }

  /// The status that was reported; BP_TIMEOUT when the time is over first. 0 only asks, BP_NO_TIMEOUT has no limit.
  int32_t wait(uint64_t timeout_ns) const {
    const Deadline deadline(timeout_ns);
    std::unique_lock lock(state_->mutex);
    return deadline.wait(state_->changed, lock, [&] { return state_->status != BP_PENDING; }) ? state_->status : BP_TIMEOUT;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int32_t status = BP_PENDING;
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// stream_callback for a runtime whose callbacks do not hold the queue up: behind a marker the queue waits for a user event, which is
/// completed when fn has run. Queue is a class of the driver's, with
///
///     Event marker();                          // queues a marker and gives its event
///     Gate gate();                             // a user event that is not complete
///     void hold(const Gate& gate);             // queues a wait for it: later work of the stream comes after it
///     static void open(Gate gate) noexcept;    // completes it, from any thread
///     void on_complete(const Event& event, void (*run)(void* arg, int32_t status), void* arg);   // once, from any thread
///
/// each of which throws on an error (open excepted). Nothing else may be queued on the stream meanwhile: hold the stream's lock.
template <class Queue>
void queue_callback(Queue& queue, bp_callback fn, void* arg) {
  using Gate = decltype(queue.gate());
  struct Call {
    bp_callback fn;
    void* arg;
    Gate gate;
  };
  auto call = std::make_unique<Call>(Call{fn, arg, queue.gate()});
  const auto marker = queue.marker();
  queue.hold(call->gate);
  const auto run = [](void* given, int32_t status) {
    const std::unique_ptr<Call> one(static_cast<Call*>(given));
    one->fn(one->arg, status);
    Queue::open(std::move(one->gate));
  };
  try {
    queue.on_complete(marker, run, call.get());
  } catch (...) {  // fn will not be called, and the stream must go on
    Queue::open(std::move(call->gate));
    throw;
  }
  static_cast<void>(call.release());
}

}  // namespace backplane::driver
