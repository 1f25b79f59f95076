// drivers/shims/fault/below.h: what the entries of the shim stand on: the driver below, its devices, and whether a fault strikes.
//
// What the shim intercepts of memory, of work, of waits and of communicators are classes that derive from it, and the shim from all of
// these: there is one of it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <backplane/driver/cxx/driver.hpp>

#include "injected.h"
#include "settings.h"

namespace backplane::driver::fault {

class Below {
 protected:
  explicit Below(const Host& host) : settings_(Options(host.config())), below_(checked(host.inner())) {}
  ~Below() = default;

  /// Returns BP_OK or BP_PENDING; throws the rest with the words of the driver below.
  int32_t checked_call(int32_t status) {
    if (status == BP_OK || status == BP_PENDING) [[likely]]
      return status;
    throw Error(checked_status(status), last_error_text(below_));
  }
  template <class... Params, class... Args>
  int32_t pass(int32_t (*bp_driver::*slot)(void*, Params...), Args... args) {
    return checked_call((below_.*slot)(below_.self, args...));
  }
  template <auto Slot, class Group, class... Params, class... Args>
  int32_t call_group(int32_t (*Group::*)(void*, Params...), Args... args) {
    const Group& below = *std::get<Wrapped<Group>>(wrapped_).below;
    return (below.*Slot)(below.head.self, args...);
  }
  /// The entry of a group below.
  template <auto Slot, class... Args>
  void pass_group(Args... args) {
    checked_call(call_group<Slot>(Slot, args...));
  }
  /// A destroy: a lost device has nothing left to complain about.
  void release(int32_t device, int32_t status) {
    if (state(device).sticky() != BP_DEVICE_LOST) checked_call(status);
  }
  template <auto Slot, class... Args>
  void release_group(int32_t device, Args... args) {
    release(device, call_group<Slot>(Slot, device, args...));
  }

  /// A group of the SDK's, as the driver below has it and as the shim offers it.
  template <class Group>
  struct Wrapped : GroupTraits<Group> {
    std::optional<Group> below;
    Group offered{};
  };
  template <class, class... Each>
  using Tuple = std::tuple<Wrapped<Each>...>;
#define BP_WRAPPED(group, GROUP, about) , bp_##group
  using Groups = Tuple<void BP_DRIVER_GROUPS(BP_WRAPPED)>;
#undef BP_WRAPPED

  DeviceFault& state(int32_t device) {
    if (static_cast<size_t>(device) >= devices_.size()) [[unlikely]] {
      throw Error(BP_INVALID_DEVICE, "no device " + std::to_string(device) + ": there are " + std::to_string(devices_.size()));
    }
    return *devices_[static_cast<size_t>(device)];
  }
  bool strikes(FaultKind& kind, int32_t device) {
    if (!kind.armed() || (settings_.device >= 0 && settings_.device != device)) return false;
    if (!settings_.armed) {
      if (access(settings_.armed_by.c_str(), F_OK) != 0) return false;
      settings_.armed = true;
    }
    return kind.strikes();
  }

  /// For every call that may lose the device.
  DeviceFault& alive(int32_t device) {
    DeviceFault& found = state(device);
    if (strikes(settings_.lost, device)) {
      found.suffer(BP_DEVICE_LOST, settings_.lost.text("device " + std::to_string(device) + " has fallen off the bus"));
    }
    found.check();
    return found;
  }

  /// True if the stream captures. What is recorded does not run, so it does not count: its launch does, as one piece of work.
  bool captures(int32_t device, bp_stream* stream) {
    if (!captured_) return false;
    int32_t status = BP_CAPTURE_NONE;
    return call_group<&bp_graph::capture_status>(&bp_graph::capture_status, device, stream, &status, nullptr) == BP_OK &&
           status != BP_CAPTURE_NONE;
  }

  /// True if work of the driver's own goes to it. A failing one goes behind a mark, which the stream comes to first; where the driver below
  /// has no callbacks, the device fails at once.
  bool queue(DeviceFault& found, int32_t device, bp_stream* stream, const char* what) {
    if (captures(device, stream)) return true;
    if (strikes(settings_.hang, device)) found.hang(stream);
    if (found.hangs(stream)) return false;
    if (!strikes(settings_.kernel, device)) return true;
    const std::string text = settings_.kernel.text(std::string(what) + " failed: bad address");
    if (!below_.stream_callback) {
      found.suffer(BP_FAULT, text);
      return false;
    }
    struct Mark {
      DeviceFault* state;
      std::string text;
    };
    auto mark = std::make_unique<Mark>(Mark{&found, text});
    const auto strike = [](void* arg, int32_t) {
      const std::unique_ptr<Mark> one(static_cast<Mark*>(arg));
      one->state->suffer(BP_FAULT, one->text);
    };
    checked_call(below_.stream_callback(below_.self, device, stream, strike, mark.get()));
    static_cast<void>(mark.release());
    return false;
  }

  Settings settings_;
  const bp_driver below_;
  std::vector<std::unique_ptr<DeviceFault>> devices_;
  std::atomic<bool> captured_{false};  // something was, at some time
  Groups wrapped_;

 private:
  static bp_driver checked(const bp_driver* table) {
    if (!table) throw Error(BP_INVALID_ARGUMENT, "fault is a shim: it needs a driver below it");
    if (auto mismatch = abi_mismatch(table->abi_major, table->abi_minor)) throw Error(BP_UNSUPPORTED, "the driver below has " + *mismatch);
    const bp_driver copy = normalised(*table);
    if (!is_complete(copy)) throw Error(BP_UNSUPPORTED, "fault needs a complete driver below it: put the shim emulate between them");
    return copy;
  }
};

}  // namespace backplane::driver::fault
