// drivers/engine/engine.h: streams, events and sticky faults for devices whose work is host functions; sim and emulate share it.
//
// A driver derives from Engine and gets the slots of the groups streams (less copy_async) and events, and synchronize, ready made. Devices
// come into being at the first call that names them; until then there is no thread. shutdown() ends all of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <backplane/driver.h>
#include <backplane/driver/cxx/error.hpp>

#include "capture.h"
#include "shared_event.h"
#include "stream.h"

namespace backplane::driver {

class EngineDevice;

/// What a bp_event is here: the latest record of the event.
struct EngineEvent {
  EngineEvent(EngineDevice& owner, uint32_t event_flags, std::shared_ptr<SharedEvent> other_side = nullptr)
      : device(owner), flags(event_flags), shared(std::move(other_side)) {}

  EngineDevice& device;
  const uint32_t flags;
  const std::shared_ptr<SharedEvent> shared;  // of an event between processes: the records are there, and latest stays NULL
  size_t index = 0;                           // in the device's list
  std::mutex mutex;
  Completion* latest = nullptr;         // NULL: never recorded
  EventPoint point{shared != nullptr};  // of the latest record, where that is in a capture

  /// The latest record with a reference of the caller's, or NULL.
  Completion* take() {
    std::lock_guard lock(mutex);
    return latest ? latest->ref() : nullptr;
  }
};

/// The queues of one device.
class EngineDevice {
 public:
  EngineDevice(int32_t index, bool workers, int32_t stream_limit, const std::string& name);
  ~EngineDevice();

  int32_t index() const { return index_; }
  Stream& default_stream() { return *default_; }

  /// BP_OK, or the status that all work of this device gets from now on.
  int32_t sticky() const { return sticky_.load(std::memory_order_acquire); }
  /// Throws the sticky error, if there is one.
  void check() const {
    if (sticky() != BP_OK) [[unlikely]]
      throw_sticky();
  }
  /// Makes the device fault: BP_DEVICE_LOST stays that, all else is BP_FAULT. The first one counts.
  void fault(int32_t status, const std::string& text) noexcept;

  Stream* create_stream(int32_t priority);
  void destroy_stream(Stream* stream);
  bool synchronize(const Deadline& deadline);
  /// The live stream at that address, NULL if there is none.
  Stream* find_stream(uint64_t address) const;

  EngineEvent* create_event(uint32_t flags, std::shared_ptr<SharedEvent> shared);
  void destroy_event(EngineEvent* event);

 private:
  [[noreturn]] void throw_sticky() const;

  const int32_t index_;
  const bool workers_;
  const int32_t stream_limit_;
  const std::string name_;
  std::atomic<int32_t> sticky_{BP_OK};
  mutable std::mutex mutex_;  // never held while work runs
  std::string fault_;
  std::shared_ptr<Stream> default_;
  std::vector<std::shared_ptr<Stream>> streams_;  // shared: synchronize() waits for streams that another thread may destroy
  std::vector<std::unique_ptr<EngineEvent>> events_;
  int32_t created_ = 0;
};

class Engine {
 public:
  struct Config {
    std::string name;  // of the worker threads
    int32_t devices = 1;
    bool workers = false;  // else inline
    int32_t stream_limit = 32;
    std::shared_ptr<SharedEvent> (*share_event)() = nullptr;  // makes what BP_EVENT_IPC asks for; NULL: unsupported
  };
  static constexpr int32_t kPriorityLeast = 0;
  static constexpr int32_t kPriorityGreatest = -1;

  int32_t synchronize(int32_t device, uint64_t timeout_ns);
  int32_t stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out);
  int32_t stream_destroy(int32_t device, bp_stream* stream);
  int32_t stream_query(int32_t device, bp_stream* stream);
  int32_t stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns);
  int32_t stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg);
  int32_t stream_from_native(int32_t device, uint64_t native, bp_stream** out);
  int32_t event_create(int32_t device, uint32_t flags, bp_event** out);
  int32_t event_destroy(int32_t device, bp_event* event);
  int32_t event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags);
  int32_t event_query(int32_t device, bp_event* event);
  int32_t event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns);
  int32_t stream_wait(int32_t device, bp_stream* stream, bp_event* event);
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns);

  // For entries of other groups.

  Engine() = default;
  ~Engine() { shutdown(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Once, before the first use: device_count is known then.
  void configure(const Config& config);
  void open_engine() { opened_.store(true, std::memory_order_release); }
  /// Completes all work and ends all threads.
  void shutdown();

  /// The device of that index; made by its first use. Throws Error(BP_INVALID_DEVICE).
  EngineDevice& at(int32_t device) {
    check_index(device);
    EngineDevice* found = devices_[static_cast<size_t>(device)].load(std::memory_order_acquire);
    return found ? *found : make(device);
  }
  void check_index(int32_t device) const {
    if (static_cast<uint32_t>(device) >= devices_.size()) [[unlikely]]
      throw_no_device(device);
  }
  /// The stream behind a handle. Throws if it belongs to another device.
  Stream& resolve(int32_t device, bp_stream* stream) {
    EngineDevice& owner = at(device);
    if (!stream) return owner.default_stream();
    Stream& found = *reinterpret_cast<Stream*>(stream);
    if (&found.device() != &owner) [[unlikely]]
      throw_other_device("stream", found.device(), device);
    return found;
  }
  /// The same, and the device has not faulted.
  Stream& usable(int32_t device, bp_stream* stream) {
    Stream& found = resolve(device, stream);
    found.device().check();
    return found;
  }
  /// An event handle over what another process made, and what is behind a handle. Throws for an event that is not shared.
  bp_event* open_event(int32_t device, std::shared_ptr<SharedEvent> shared);
  SharedEvent& shared_event(int32_t device, bp_event* event);
  const Config& engine_config() const { return config_; }
  EngineCaptures& captures() { return captures_; }

 private:
  EngineDevice& make(int32_t device);
  EngineEvent& resolve(int32_t device, bp_event* event);
  [[noreturn]] void throw_no_device(int32_t device) const;
  [[noreturn]] static void throw_other_device(const char* what, const EngineDevice& found, int32_t asked);

  Config config_;
  std::atomic<bool> opened_{false};
  std::mutex mutex_;
  std::vector<std::atomic<EngineDevice*>> devices_;
  EngineCaptures captures_;
};

}  // namespace backplane::driver
