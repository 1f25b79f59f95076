// distributed/native_transport.h: collectives over the driver's own links (bp.collective), queued on a stream. The host does not wait.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/communicator.h"
#include "distributed/native_calls.h"
#include "distributed/transport.h"

namespace backplane::distributed {

// One communicator per device of the rank's tensors, made by the first collective there or by connect(). Ranks must use their devices in
// the same order. Without a communicator, sends and receives are not supported, because joining requires all ranks. A send and a receive
// that two ranks make in opposite order must be in one batch.
class NativeTransport final : public Transport {
 public:
  // `group`: for errors, "process group 'x' (rank 0 of 2)".
  NativeTransport(c10::intrusive_ptr<c10d::Store> store, std::string group, int rank, int size, c10::intrusive_ptr<GroupOptions> options);
  ~NativeTransport() override { shutdown(); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::optional<c10::Device> device();  // of its first communicator
  // Joins, unless that was done. A failed join is not repeated: the other ranks may wait for the first one, or have given up.
  std::shared_ptr<Communicator> connect(c10::Device device);

  std::unique_ptr<Calls> calls(const Request& request) override;
  // Calls submitted between the two are queued by the second, as one part of `work`.
  void begin_batch(c10::Device device);
  void end_batch(const c10::intrusive_ptr<GroupWork>& work);
  // All ranks call it. Makes communicators for `part`, this rank's transport of the part with this color; NULL and -1 if the rank is in no
  // part. If the driver does not support it, the part joins later.
  void split(int color, NativeTransport* part);

  std::exception_ptr failure() override;
  void abort(const std::string& why) override;
  void shutdown() override;

 private:
  friend class NativeCalls;
  void submit(const std::shared_ptr<Communicator>& communicator, const Submission& submission, const c10::intrusive_ptr<GroupWork>& work);

  std::shared_ptr<Communicator> communicator_on(c10::Device device);  // NULL: none yet
  std::vector<std::shared_ptr<Communicator>> communicators();
  CommunicatorSettings settings() const { return {group_, rank_, size_, options_->timeout}; }
  std::shared_ptr<Communicator> join(c10::Device device);
  std::string exchange_id(const std::string& key, std::string id, Communicator::Deadline deadline);
  void fail(const std::string& why);
  void throw_if_failed();

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string group_;
  const int rank_, size_;
  const c10::intrusive_ptr<GroupOptions> options_;
  std::unique_ptr<Submission> batch_;  // between begin_batch and end_batch

  std::mutex joining_;  // one join at a time; taken before mutex_
  std::mutex mutex_;    // protects what follows; never held while something blocks
  std::vector<std::shared_ptr<Communicator>> communicators_;
  std::exception_ptr failure_;  // of a join or a shutdown: no further communicators are made
};

}  // namespace backplane::distributed
