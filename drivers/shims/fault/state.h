// drivers/shims/fault/state.h: what the entries of the shim share: the inner driver, its devices, and whether a fault strikes.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <backplane/driver/cxx/driver.hpp>

#include "../inner.h"
#include "injected.h"
#include "settings.h"

namespace backplane::driver::fault {

struct State {
  explicit State(const Host& host) : settings(Options(host.config())), inner("fault", host.inner()), graph(inner) {
    if (!is_complete(*inner)) {
      throw Error(BP_UNSUPPORTED, "fault needs a complete inner driver: put the shim emulate between them");
    }
  }

  DeviceFault& of(int32_t device) {
    if (static_cast<size_t>(device) >= devices.size()) [[unlikely]] {
      throw Error(BP_INVALID_DEVICE, "no device " + std::to_string(device) + ": there are " + std::to_string(devices.size()));
    }
    return *devices[static_cast<size_t>(device)];
  }
  bool strikes(FaultKind& kind, int32_t device) {
    if (!kind.armed() || (settings.device >= 0 && settings.device != device)) return false;
    if (!settings.armed) {
      if (access(settings.armed_by.c_str(), F_OK) != 0) return false;
      settings.armed = true;
    }
    return kind.strikes();
  }
  /// Throws if the fault strikes, with `what` as its text.
  template <class... Text>
  void refuse(FaultKind& kind, int32_t device, bp_status status, const Text&... what) {
    if (!strikes(kind, device)) return;
    std::ostringstream text;
    (text << ... << what);
    throw Error(status, kind.text(text.str()));
  }

  /// For every call that may lose the device.
  DeviceFault& alive(int32_t device) {
    DeviceFault& found = of(device);
    if (strikes(settings.lost, device)) {
      found.suffer(BP_DEVICE_LOST, settings.lost.text("device " + std::to_string(device) + " has fallen off the bus"));
    }
    found.check();
    return found;
  }

  /// True if the stream captures. What is recorded does not run, so it does not count: its launch does, as one piece of work.
  bool captures(int32_t device, bp_stream* stream) {
    if (!captured) return false;
    int32_t status = BP_CAPTURE_NONE;
    return graph.status(&bp_graph::capture_status, device, stream, &status, nullptr) == BP_OK && status != BP_CAPTURE_NONE;
  }

  /// True if the work goes to the inner driver. Work that fails is replaced by a callback at which the device fails; where the inner driver
  /// has no callbacks, the device fails at once.
  bool queue(DeviceFault& found, int32_t device, bp_stream* stream, const char* what) {
    if (captures(device, stream)) return true;
    if (strikes(settings.hang, device)) found.hang(stream);
    if (found.hangs(stream)) return false;
    if (!strikes(settings.kernel, device)) return true;
    const std::string text = settings.kernel.text(std::string(what) + " failed: bad address");
    if (!inner->stream_callback) {
      found.suffer(BP_FAULT, text);
      return false;
    }
    inner.callback(device, stream, [state = &found, text](int32_t) { state->suffer(BP_FAULT, text); });
    return false;
  }

  /// A destroy: a lost device has nothing left to complain about.
  template <class Call>
  void release(int32_t device, Call&& call) {
    try {
      call();
    } catch (const Error&) {
      if (of(device).sticky() != BP_DEVICE_LOST) throw;
    }
  }

  Settings settings;
  InnerDriver inner;
  std::vector<std::unique_ptr<DeviceFault>> devices;
  std::atomic<bool> captured{false};  // something was, at some time
  PassingGroup<bp_graph> graph;
};

template <class Group>
using Intercepted = InterceptedGroup<Group, State>;

}  // namespace backplane::driver::fault
