// distributed/staged_transport.h: collectives by way of the host and Gloo, for any driver: device -> pinned memory -> network -> device.
//
// Note [Staged calls]: the caller's thread queues the copies to the host behind its stream's work. A starter waits for them and hands the
// call to Gloo. It takes calls in the order of their submission, in which Gloo matches them between ranks, and asks before each collective
// whether all ranks agree about it (fingerprint.h), which takes them all; messages, which do not, have a starter of their own. A thread for
// each call waits for Gloo and queues the copies back: a receive may be answered by a call that comes later, and what a user hangs on a
// future may make a call and wait for it. Nothing waits for the threads: each task owns the transport and its call, also when the group or
// the interpreter is gone.
//
// Note [Order of staged calls]: as on a driver's own stream, calls of a group are in the order of their submission. A call that touches
// memory which a call in flight writes, or writes what that one reads, begins when that one is over: its starter waits, and queues the
// copies to the host then. Collectives on one device end in their order, so that who has waited for one sees those before it. What does
// not touch goes on at once; the calls of one batch are not ordered among themselves.
#pragma once

#include <backplane/driver.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "distributed/fingerprint.h"
#include "distributed/host_copy.h"
#include "distributed/own_messages.h"
#include "distributed/transport.h"
#include "distributed/workers.h"

namespace backplane::distributed {

struct StagedCall {
  // `timeout`: from submit() to the end of the network's part.
  StagedCall(const char* name, c10::Device device, std::chrono::milliseconds timeout) : name(name), device(device), timeout(timeout) {}

  const char* name;  // "all_reduce"
  c10::Device device;
  std::chrono::milliseconds timeout;
  c10::intrusive_ptr<GroupWork> work;  // that it is a part of; set before submit()

  bool is_message = false;                   // of two ranks
  std::unique_ptr<Fingerprint> fingerprint;  // NULL: nothing is asked before it

  // Of all functions, `timeout` is what is left of it.
  using Timeout = std::chrono::milliseconds;
  using GloosWork = c10::intrusive_ptr<c10d::Work>;
  std::vector<HostCopy> copies;
  std::function<GloosWork(Timeout timeout)> start;  // on a starter's thread, with the copies on the host; empty: nothing is moved
  // When that is over, before the copies back; empty: nothing.
  std::function<void(const GloosWork& started, Timeout timeout)> finish;

  // Adds a tensor, and gives what the network takes for it: flat, on the host.
  at::Tensor reads(const at::Tensor& tensor, Given given = Given::kept, const Prepare& prepare = {}) {
    return add({tensor, {}, given, prepare});
  }
  at::Tensor writes(const at::Tensor& tensor) { return add({{}, tensor}); }
  at::Tensor exchanges(const at::Tensor& from, const at::Tensor& to, const Prepare& prepare = {}) {
    return add({from, to, Given::overwritten, prepare});
  }

 private:
  at::Tensor add(HostCopy copy) {
    copies.push_back(std::move(copy));
    return copies.back().host();
  }

  // Addresses in device memory, from the first byte of a tensor to behind the last.
  struct Range {
    uint64_t begin, end;
  };

  friend class StagedTransport;
  std::vector<Range> read, written;
  std::vector<uint64_t> earlier;  // numbers of those that must be over before this one begins
  uint64_t number = 0;            // in the order of submission
  PooledEvent ready;
  std::chrono::steady_clock::time_point deadline;
  GloosWork inner;
};

// Of one rank. Any thread. Whoever makes it shuts it down: its threads own it, too.
class StagedTransport final : public Transport, public std::enable_shared_from_this<StagedTransport> {
 public:
  // `group`: its name and rank, for errors.
  StagedTransport(std::string group, c10::intrusive_ptr<c10d::Backend> gloo);

  int rank() const { return gloo_->getRank(); }
  int size() const { return gloo_->getSize(); }
  const c10::intrusive_ptr<c10d::Backend>& gloo() const { return gloo_; }
  const std::shared_ptr<OwnMessages>& own_messages() const { return own_messages_; }
  uint32_t next_message() { return sent_++; }

  std::unique_ptr<Calls> calls(const Request& request) override;
  // Queues the copies and returns. Throws c10::DistBackendError if the group has failed, and if the current stream is capturing. The work's
  // part is ended by finish_part(), or by an error: c10::DistBackendError for the network's and the device's, after which the group has
  // failed.
  void submit(std::shared_ptr<StagedCall> call);

  std::exception_ptr failure() override;
  void abort(const std::string& why) override;
  void shutdown() override;  // ends the threads, too

 private:
  struct Streams {
    c10::Stream in, out;
  };
  Streams streams(c10::Device device);
  static bool must_follow(const StagedCall& call, const StagedCall& before);
  void find_earlier(StagedCall& call);
  void queue_copies_in(StagedCall& call);
  void wait_for_earlier(const StagedCall& call);
  void wait_for_turn(const StagedCall& call);
  void start(const std::shared_ptr<StagedCall>& call);
  void complete(const std::shared_ptr<StagedCall>& call);
  void wait_until_ready(const StagedCall& call);
  void fail(const std::shared_ptr<StagedCall>& call, const std::exception& error);
  void fail_all(const std::exception_ptr& error);
  void forget(const std::shared_ptr<StagedCall>& call);

  const std::string group_;
  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::shared_ptr<OwnMessages> own_messages_ = std::make_shared<OwnMessages>();
  std::atomic<uint32_t> sent_{0};

  std::mutex mutex_;              // over what follows
  std::condition_variable over_;  // a call, or all of them by a failure
  std::exception_ptr failure_;
  uint64_t submitted_ = 0;
  std::map<uint64_t, std::shared_ptr<StagedCall>> pending_;  // by their numbers
  std::map<c10::DeviceIndex, Streams> streams_;

  Workers collectives_, messages_, waiters_;
};

}  // namespace backplane::distributed
