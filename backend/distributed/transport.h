// distributed/transport.h: how the collectives of a process group are carried out: over the driver's links (native_transport.h), or by
// way of the host (staged_transport.h). A group has one of them or both, and a call goes to the first that takes it.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "distributed/calls.h"
#include "torch/distributed.h"

namespace backplane::distributed {

// torch's ProcessGroup's `options`.
struct GroupOptions : c10d::Backend::Options {
  explicit GroupOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(BACKPLANE_DEVICE_NAME "ccl", timeout) {}
  virtual c10::intrusive_ptr<c10d::Backend::Options> clone() const BACKPLANE_OVERRIDE_FROM_2_14 {
    return c10::make_intrusive<GroupOptions>(*this);
  }
};

// One rank's. Any thread, but for the calls of collectives, which all ranks make in one order.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // For the calls of one collective; NULL: it does not take this one. Throws c10::DistBackendError if it has failed.
  virtual std::unique_ptr<Calls> calls(const Request& request) = 0;

  virtual std::exception_ptr failure() = 0;        // NULL: none
  virtual void abort(const std::string& why) = 0;  // fails calls in flight, and those that come
  virtual void shutdown() = 0;                     // lets calls in flight end, for a few seconds; peers notice nothing
};

}  // namespace backplane::distributed
