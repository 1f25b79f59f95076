// distributed/transport.h: runs the collectives of a process group: over the driver's links (native_transport.h), or staged
// (staged_transport.h). A group has one or both; the first that supports a call runs it.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "distributed/calls.h"
#include "torch/distributed.h"

namespace backplane::distributed {

// The `options` of torch's ProcessGroup.
struct GroupOptions : c10d::Backend::Options {
  explicit GroupOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(BACKPLANE_DEVICE_NAME "ccl", timeout) {}
  virtual c10::intrusive_ptr<c10d::Backend::Options> clone() const BACKPLANE_OVERRIDE_FROM_2_14 {
    return c10::make_intrusive<GroupOptions>(*this);
  }
};

// For one rank. Any thread, but calls of collectives must be in the same order on all ranks.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // The calls of one collective; NULL: not supported. Throws c10::DistBackendError if it has failed.
  virtual std::unique_ptr<Calls> calls(const Request& request) = 0;

  virtual std::exception_ptr failure() = 0;        // NULL: none
  virtual void abort(const std::string& why) = 0;  // fails calls in flight, and later ones
  virtual void shutdown() = 0;                     // calls in flight may complete within a few seconds; peers are not affected
};

}  // namespace backplane::distributed
