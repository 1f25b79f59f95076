// backplane/driver/cxx/handles.hpp: RAII handles over a driver's table, for whoever calls a driver: tests, tools, shims.
//
//     Instance driver(entry, "devices=2");          // bp_driver_get and open; close at the end of the scope
//     MemoryHandle a(driver, 0, 4096);
//     StreamHandle stream(driver, 0);
//     EventHandle done(driver, 0);
//     check(driver, driver->event_record(driver->self, 0, stream.get(), done.get(), 0u), "event_record");
//
// A handle must not outlive its instance. Constructors throw Error; destructors ignore what the driver answers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "../../driver.h"
#include "error.hpp"
#include "load.hpp"
#include "table.hpp"

namespace backplane::driver {

/// An opened driver. Holds the normalised table.
class Instance {
 public:
  /// Makes an instance, checks its ABI and groups, and opens it. `inner` is for shims, and is the new instance's from then on.
  explicit Instance(bp_driver_get_fn entry, const std::string& config = "", const bp_driver* inner = nullptr) {
    const Answer answer = ask(entry, config, inner, nullptr);
    if (answer.status != BP_OK || !answer.table) throw Error(checked_status(answer.status), "bp_driver_get refused: " + answer.reason);
    table_ = normalised(*answer.table);
    try {
      if (auto mismatch = abi_mismatch(table_.abi_major, table_.abi_minor)) throw Error(BP_UNSUPPORTED, *mismatch);
      if (auto missing = incomplete_group(table_)) throw Error(BP_INVALID_ARGUMENT, *missing);
      if (const int32_t opened = table_.open(table_.self)) throw Error(checked_status(opened), "open: " + last_error_text(table_));
    } catch (...) {
      close();
      throw;
    }
  }
  ~Instance() { close(); }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  /// Ends the instance early; the destructor then does nothing.
  void close() {
    if (table_.close) table_.close(table_.self);
    table_ = {};
  }

  const bp_driver& operator*() const { return table_; }
  const bp_driver* operator->() const { return &table_; }

 private:
  bp_driver table_{};
};

/// Throws Error with the driver's own text unless `status` is BP_OK. `call` names what was called.
inline void check(const Instance& driver, int32_t status, const char* call) {
  if (status != BP_OK)
    throw Error(checked_status(status), std::string(call) + " -> " + status_name(status) + ": " + last_error_text(*driver));
}

/// What these handles have in common: an instance, a device and a value that one entry gives back.
template <class Value, int32_t (*bp_driver::*End)(void*, int32_t, Value)>
class Handle {
 public:
  Handle(Handle&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), device_(other.device_), value_(std::exchange(other.value_, Value{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(device_, other.device_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (driver_) ((**driver_).*End)((**driver_).self, device_, value_);
  }

  Value get() const { return value_; }
  int32_t device() const { return device_; }

 protected:
  Handle(const Instance& driver, int32_t device) : driver_(&driver), device_(device) {}
  /// Keeps what `status` says was made; if it was not, there is nothing to give back.
  void made(int32_t status, const char* call) {
    const Instance& driver = *driver_;
    if (status != BP_OK) driver_ = nullptr;
    check(driver, status, call);
  }

  const Instance* driver_;
  int32_t device_;
  Value value_{};
};

/// Device memory.
class MemoryHandle : public Handle<uint64_t, &bp_driver::free> {
 public:
  MemoryHandle(const Instance& driver, int32_t device, uint64_t bytes) : Handle(driver, device) {
    made(driver->alloc(driver->self, device, bytes, 0, &value_), "alloc");
  }
};

/// A stream.
class StreamHandle : public Handle<bp_stream*, &bp_driver::stream_destroy> {
 public:
  StreamHandle(const Instance& driver, int32_t device, int32_t priority = 0) : Handle(driver, device) {
    made(driver->stream_create(driver->self, device, priority, 0, &value_), "stream_create");
  }
};

/// An event.
class EventHandle : public Handle<bp_event*, &bp_driver::event_destroy> {
 public:
  EventHandle(const Instance& driver, int32_t device, uint32_t flags = 0) : Handle(driver, device) {
    made(driver->event_create(driver->self, device, flags, &value_), "event_create");
  }
};

/// Pinned host memory.
class PinnedMemory {
 public:
  PinnedMemory(const Instance& driver, uint64_t bytes) : driver_(driver) {
    check(driver, driver->host_alloc(driver->self, bytes, 0, &memory_), "host_alloc");
  }
  ~PinnedMemory() { driver_->host_free(driver_->self, memory_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  void* get() const { return memory_; }

 private:
  const Instance& driver_;
  void* memory_ = nullptr;
};

}  // namespace backplane::driver
