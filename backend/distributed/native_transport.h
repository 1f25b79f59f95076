// distributed/native_transport.h: collectives over the driver's own links: what bp.collective takes is queued on a stream, and the host
// waits for nothing.
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

// A communicator for each device that the rank's tensors are on, made by the first collective there, or by connect(); ranks come to their
// devices in the same order. Until it is there, sends and receives are not taken: joining takes all ranks. A send and a receive that two
// ranks make in opposite order must be in one batch.
class NativeTransport final : public Transport {
 public:
  // `group`: for errors, "process group 'x' (rank 0 of 2)".
  NativeTransport(c10::intrusive_ptr<c10d::Store> store, std::string group, int rank, int size, c10::intrusive_ptr<GroupOptions> options);
  ~NativeTransport() override { shutdown(); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::optional<c10::Device> device();  // the first one that it has a communicator for
  // Joins, if that was not done. One that failed is not tried again: the other ranks may be waiting for the first one, or have given up.
  std::shared_ptr<Communicator> connect(c10::Device device);

  std::unique_ptr<Calls> calls(const Request& request) override;
  // Calls that are submitted between the two are queued by the second, as one part of `work`.
  void begin_batch(c10::Device device);
  void end_batch(const c10::intrusive_ptr<GroupWork>& work);
  // All ranks call it. Communicators for `part`, the same group's of this rank in a part of the ranks, whose color this is; NULL and -1:
  // in none. Of a driver that has no such call it makes its own later.
  void split(int color, NativeTransport* part);

  std::exception_ptr failure() override;
  void abort(const std::string& why) override;
  void shutdown() override;

 private:
  friend class NativeCalls;
  void submit(const std::shared_ptr<Communicator>& communicator, const Submission& submission, const c10::intrusive_ptr<GroupWork>& work);

  std::shared_ptr<Communicator> communicator_on(c10::Device device);  // NULL: not yet
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
  std::mutex mutex_;    // over what follows; never held while something blocks
  std::vector<std::shared_ptr<Communicator>> communicators_;
  std::exception_ptr failure_;  // of a join, or an end: no communicator is made any more
};

}  // namespace backplane::distributed
