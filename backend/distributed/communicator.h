// distributed/communicator.h: one rank's communicator of the driver (bp.collective), and the watch over what is queued on it.
//
// Note [A collective that fails]: the device is well, its streams go on, and what the collective should have written is undefined. So the
// error is raised wherever that could be taken for a result: by wait() and the next calls of the group, and by every wait of a user for the
// device (runtime/wait.h), until the group is shut down, or aborted: then by one more wait, of another thread than the one that knows, if
// something was lost (native_watch.h), also when the group is gone by then. A thread looks after what is queued: it aborts a communicator
// whose work takes longer than its timeout, so that streams do not wait for ever.
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
  std::chrono::milliseconds timeout;  // to join
};

// Throws unless a call of bp.collective was BP_OK: the device's own errors as everywhere, others as c10::DistBackendError.
void check_collective(int32_t status, const char* call, c10::Device device);

// What the driver's collectives take on a device. Opens no driver.
bp_collective_properties collective_properties(c10::DeviceIndex device);

// What is queued together: of one collective, or of several that are coalesced.
struct Submission {
  using Call = std::function<void(bp_comm* comm, bp_stream* stream)>;

  c10::Device device;
  std::chrono::milliseconds timeout;
  const char* name;
  std::vector<at::Tensor> kept{};              // what the stream uses: their memory stays until it has come there
  std::vector<Call> calls{};                   // of the driver; several are a group
  std::vector<std::function<void()>> after{};  // behind them, with the stream current

  void add(const Submission& other);
};

// Work on the communicator's stream.
struct NativeCall {
  const char* name;
  std::chrono::milliseconds timeout;
  std::chrono::steady_clock::time_point deadline;
  PooledEvent done;
  std::atomic<bool> ended_well{false};  // known to be over, on a communicator that had not failed
};

// Any thread; what queues is done by one at a time.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // Carries rank 0's id to the other ranks: called with it there, with an empty string elsewhere; gives it. Empty on rank 0: there is none.
  using ExchangeId = std::function<std::string(std::string id, Deadline deadline)>;

  // Joins; blocks until all ranks have, as long as the timeout, with the exchange of the id. A Ctrl-C ends it, and `check`, which is called
  // again and again, by an exception. Throws c10::DistBackendError, and what the exchange does.
  static std::shared_ptr<Communicator> connect(c10::Device device, const CommunicatorSettings& settings, const ExchangeId& exchange_id,
                                               const std::function<void()>& check);
  // A communicator of the ranks that give the same color; all of this one's call it. Color -1: of none, NULL. Needs BP_COLLECTIVE_SPLIT.
  std::shared_ptr<Communicator> split(int color, const CommunicatorSettings& settings);

  Communicator(c10::Device device, std::string group, bp_comm* comm);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  c10::Device device() const { return device_; }
  const c10::Stream& stream() const { return stream_; }
  const bp_collective_properties& properties() const { return properties_; }
  bool has(uint32_t flag) const;  // BP_COLLECTIVE_*

  // The communicator's stream waits for what the caller's stream has been given.
  void follow_caller() const;

  // Queues on the communicator's stream, behind the caller's stream. From then on it is watched. Throws c10::DistBackendError if the group
  // has failed; if something in it throws, the group is aborted, as other ranks wait for what was not queued.
  std::shared_ptr<NativeCall> run(const Submission& submission);

  std::exception_ptr failure();  // asks the driver, too; NULL: none
  void abort(const std::string& why);
  void shutdown();  // lets queued work end, for a few seconds; peers notice nothing

  // For the watch. check_for_user: what a user's wait throws, NULL: nothing.
  bool look();  // whether there is work
  std::exception_ptr check_for_user();

 private:
  // With mutex_ held. Once. Aborts the communicator: its peers wait for it, and work of its own may hang though it has failed.
  void fail(const std::string& why);
  void look_locked();
  void destroy() noexcept;

  const c10::Device device_;
  const std::string group_;
  const c10::Stream stream_;
  const bp_collective_properties properties_;

  std::mutex calls_;  // over calls to the driver, status and abort apart; taken before mutex_

  std::mutex mutex_;  // over what follows; of driver calls, status, abort and event_query are made under it, which do not block
  bp_comm* comm_;     // NULL: destroyed
  std::deque<std::shared_ptr<NativeCall>> queued_;
  std::exception_ptr failure_;
  bool is_reported_ = false;  // users' waits do not throw any more
};

}  // namespace backplane::distributed
