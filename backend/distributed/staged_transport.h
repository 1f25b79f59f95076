// distributed/staged_transport.h: staged collectives by Gloo, for any driver: device -> pinned memory -> network -> device.
//
// Note [Staged calls]: the caller's thread queues the copies to the host after its stream's work. A starter thread waits for them and
// passes the call to Gloo, in the order of submission, in which Gloo matches calls between ranks. Before each collective it compares
// fingerprints with all ranks (fingerprint.h); messages, which involve two ranks, have their own starter. A thread per call waits for Gloo
// and queues the copies back: a receive may be answered by a later call, and a callback of a future may make a call and wait for it.
// Nothing waits for the threads: each task owns the transport and its call, even if the group or the interpreter no longer exists.
//
// Note [Order of staged calls]: as on a driver's stream, calls of a group are ordered by submission. A call that accesses memory which a
// call in flight writes, or writes memory which that one reads, begins when that one is complete: its starter waits, and then queues the
// copies to the host. Collectives on one device complete in order, so that a wait for one includes the earlier ones. Calls on other memory
// start at once; the calls of one batch are not ordered among themselves.
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
  c10::intrusive_ptr<GroupWork> work;  // the work that it is part of; set before submit()

  bool is_message = false;                   // between two ranks
  std::unique_ptr<Fingerprint> fingerprint;  // NULL: no comparison

  // `timeout` is the remaining time, in all functions.
  using Timeout = std::chrono::milliseconds;
  using GloosWork = c10::intrusive_ptr<c10d::Work>;
  std::vector<HostCopy> copies;
  std::function<GloosWork(Timeout timeout)> start;  // on a starter's thread, with the copies on the host; empty: no data
  // Called when that has completed, before the copies back; may be empty.
  std::function<void(const GloosWork& started, Timeout timeout)> finish;

  // Adds a tensor, and returns its buffer for the network: flat, on the host.
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

  // A range of device addresses: the first byte of a tensor, and the end of the last.
  struct Range {
    uint64_t begin, end;
  };

  friend class StagedTransport;
  std::vector<Range> read, written;
  std::vector<uint64_t> earlier;  // numbers of the calls that must complete before this one begins
  uint64_t number = 0;            // in the order of submission
  PooledEvent ready;
  std::chrono::steady_clock::time_point deadline;
  GloosWork inner;
};

// For one rank. Any thread. Its maker must shut it down, because its threads own it, too.
class StagedTransport final : public Transport, public std::enable_shared_from_this<StagedTransport> {
 public:
  // `group`: name and rank, for errors.
  StagedTransport(std::string group, c10::intrusive_ptr<c10d::Backend> gloo);

  int rank() const { return gloo_->getRank(); }
  int size() const { return gloo_->getSize(); }
  const c10::intrusive_ptr<c10d::Backend>& gloo() const { return gloo_; }
  const std::shared_ptr<OwnMessages>& own_messages() const { return own_messages_; }
  uint32_t next_message() { return sent_++; }

  std::unique_ptr<Calls> calls(const Request& request) override;
  // Queues the copies and returns. Throws c10::DistBackendError if the group has failed, and an error if the current stream is capturing.
  // The work's part ends by finish_part(), or by c10::DistBackendError for errors of the network and the device, after which the group has
  // failed.
  void submit(std::shared_ptr<StagedCall> call);

  std::exception_ptr failure() override;
  void abort(const std::string& why) override;
  void shutdown() override;  // also ends the threads

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

  std::mutex mutex_;              // protects what follows
  std::condition_variable over_;  // a call has completed, or all have failed
  std::exception_ptr failure_;
  uint64_t submitted_ = 0;
  std::map<uint64_t, std::shared_ptr<StagedCall>> pending_;  // by number
  std::map<c10::DeviceIndex, Streams> streams_;

  Workers collectives_, messages_, waiters_;
};

}  // namespace backplane::distributed
