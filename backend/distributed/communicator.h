// distributed/communicator.h: one rank's communicator of the driver (bp.collective), and the watch over its queued work.
//
// Note [A collective that fails]: the device is not in error, its streams continue, and the collective's outputs are undefined. So the
// error is raised wherever the outputs could be used: by wait() and the next calls of the group, and by every wait of a user for the device
// (runtime/wait.h), until the group is shut down or aborted. If an abort loses work in flight, one more wait, on a thread other than the
// aborting one, raises the error (native_watch.h), even if the group no longer exists. A thread watches queued work: it aborts a
// communicator whose work exceeds its timeout, so that streams do not wait forever.
#pragma once

#include <ATen/core/Tensor.h>
#include <backplane/driver/collective.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/event.h"

namespace backplane::distributed {

struct CommunicatorSettings {
  std::string group;  // for errors: "process group 'x' (rank 0 of 2)"
  int rank, size;
  std::chrono::milliseconds timeout;  // for joining
};

// Throws unless `status` is BP_OK: device errors as in runtime/errors.h, others as c10::DistBackendError.
void check_collective(int32_t status, const char* call, c10::Device device);

// The properties of the driver's collectives on a device. Does not open the driver.
bp_collective_properties collective_properties(c10::DeviceIndex device);

// Work that is queued together: of one collective, or of several coalesced ones.
struct Submission {
  using Call = std::function<void(bp_comm* comm, bp_stream* stream)>;

  c10::Device device;
  std::chrono::milliseconds timeout;
  const char* name;
  std::vector<at::Tensor> kept{};              // tensors that the stream uses: their memory is kept until the stream has used it
  std::vector<Call> calls{};                   // of the driver; several form a group
  std::vector<std::function<void()>> after{};  // called after them, with the stream current

  void add(const Submission& other);
};

// Work on the communicator's stream.
struct NativeCall {
  const char* name;
  std::chrono::milliseconds timeout;
  std::chrono::steady_clock::time_point deadline;
  PooledEvent done;
  std::atomic<bool> ended_well{false};  // completed, on a communicator that had not failed
};

// Any thread; queueing is serialized.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // Sends rank 0's id to the other ranks and returns it. Called with the id on rank 0, and with an empty string elsewhere. An empty id on
  // rank 0: it could not be made.
  using ExchangeId = std::function<std::string(std::string id, Deadline deadline)>;

  // Joins: blocks until all ranks have joined, at most for the timeout, which includes the exchange of the id. Ctrl-C interrupts it, and so
  // does an exception of `check`, which is called repeatedly. Throws c10::DistBackendError, and the errors of the exchange.
  static std::shared_ptr<Communicator> connect(c10::Device device, const CommunicatorSettings& settings, const ExchangeId& exchange_id,
                                               const std::function<void()>& check);
  // A communicator of the ranks with the same color; all ranks of this one must call it. Color -1: returns NULL. Requires
  // BP_COLLECTIVE_SPLIT.
  std::shared_ptr<Communicator> split(int color, const CommunicatorSettings& settings);

  Communicator(c10::Device device, std::string group, bp_comm* comm);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  c10::Device device() const { return device_; }
  const c10::Stream& stream() const { return stream_; }
  const bp_collective_properties& properties() const { return properties_; }
  bool has(uint32_t flag) const;  // BP_COLLECTIVE_*

  // Makes the communicator's stream wait for the work of the caller's current stream.
  void follow_caller() const;

  // Queues the work on the communicator's stream, after the caller's current stream, and watches it. Throws c10::DistBackendError if the
  // group has failed. If a call throws, the group is aborted, because other ranks wait for what was not queued.
  std::shared_ptr<NativeCall> run(const Submission& submission);

  std::exception_ptr failure();  // also queries the driver; NULL: none
  void abort(const std::string& why);
  void shutdown();  // queued work may complete within a few seconds; peers are not affected

  // For the watch. check_for_user: the error that a user's wait throws, or NULL.
  bool look();  // whether there is work
  std::exception_ptr check_for_user();

 private:
  // With mutex_ held; only the first call counts. Aborts the communicator: its peers wait for it, and its own work may hang although it has
  // failed.
  void fail(const std::string& why);
  void look_locked();
  void destroy() noexcept;

  const c10::Device device_;
  const std::string group_;
  const c10::Stream stream_;
  const bp_collective_properties properties_;

  std::mutex calls_;  // protects calls to the driver except status and abort; taken before mutex_

  std::mutex mutex_;  // protects what follows; under it only status, abort and event_query are called, which do not block
  bp_comm* comm_;     // NULL: destroyed
  std::deque<std::shared_ptr<NativeCall>> queued_;
  std::exception_ptr failure_;
  bool is_reported_ = false;  // users' waits no longer throw
};

}  // namespace backplane::distributed
