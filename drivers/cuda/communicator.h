// drivers/cuda/communicator.h: one rank of a communicator of NCCL: its calls one at a time, how it failed, and its end.
//
// NCCL's communicators are made so that no call of theirs blocks: what a call has begun is asked for until it is queued, so that a peer
// that does not come is a timeout and an abort ends every wait. An abort and the last step of an end may take NCCL some time, and in the
// latter it waits for the ranks of the same machine: threads of their own do them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include <backplane/driver/collective.h>

#include "gpus.h"
#include "nccl.h"

namespace backplane::driver::cuda {

/// All members but abort() and status() are for one thread at a time, with the GPU's context current.
class Communicator {
 public:
  /// Joins. Blocks until all ranks have, for config.timeout_ns at most. Throws as bp.collective's create.
  static std::shared_ptr<Communicator> join(Gpu& gpu, std::shared_ptr<const Nccl> nccl, const bp_comm_config& config);
  /// As bp.collective's split; NULL for color -1. What is queued has to end first, which counts as waiting.
  std::shared_ptr<Communicator> split(int32_t color, const bp_comm_config* config);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Gpu& gpu() const { return gpu_; }
  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }

  /// Holds the communicator for calls of NCCL: nothing ends it meanwhile. Throws Error(BP_INTERNAL) if it has failed.
  class Calls {
   public:
    explicit Calls(Communicator& of);
    /// `call(comm)` is a call of NCCL. Throws if NCCL refuses it.
    template <class Call>
    void make(const char* name, Call&& call) {
      of_->taken(name, call(of_->link_->comm.load()));
    }

   private:
    Communicator* of_;
    std::unique_lock<std::timed_mutex> lock_;
  };

  /// Waits until NCCL has done what was called last, or queued it, which is soon unless ranks have to be connected. Throws TIMEOUT, and
  /// then the communicator has failed, or INTERNAL.
  void settle(const char* name);
  /// What was called last has been queued on this stream.
  void queued_on(CUstream stream);
  /// Throws if NCCL has refused a call.
  void taken(const char* name, ncclResult_t result);

  /// False if its work was not done in time. Else the communicator is gone; NCCL may be about to end it.
  bool finish(uint64_t timeout_ns);

  void abort() { fail(BP_INTERNAL, "it was aborted"); }
  /// BP_OK or how it failed, and why. Never blocks.
  int32_t status(std::string* text = nullptr);
  /// Throws Error(BP_INTERNAL) if it has failed.
  void check();

 private:
  /// What a thread that ends the communicator needs, also after the instance.
  struct Link {
    explicit Link(const char* of) : name(of) {}
    const std::string name;  // NCCL keeps its address
    std::timed_mutex calls;  // over calls of NCCL with `comm`
    std::atomic<ncclComm_t> comm{nullptr};
    ncclComm_t part = nullptr;  // where NCCL writes what a split gives
    std::mutex mutex;           // over what follows
    std::condition_variable over;
    bool ending = false, ended = false;
  };

  Communicator(Gpu& gpu, std::shared_ptr<const Nccl> nccl, const bp_comm_config& config);
  bool failed() const { return status_.load(std::memory_order_acquire) != BP_OK; }
  void fail(int32_t status, const std::string& text);
  /// Asks NCCL, with link_->calls held, and fails with its answer. BP_PENDING: it is about to do what was called last.
  int32_t ask();
  void end(bool by_abort);
  bool ended_within(uint64_t timeout_ns);
  bool work_done(uint64_t timeout_ns);

  const Library& cuda_;
  Gpu& gpu_;
  const std::shared_ptr<const Nccl> nccl_;
  const std::shared_ptr<Link> link_;
  const int32_t rank_, size_;
  const uint64_t timeout_ns_;
  Event* last_ = nullptr;  // behind the work that was queued last
  bool used_ = false, finalized_ = false;

  std::mutex mutex_;  // over text_
  std::atomic<int32_t> status_{BP_OK};
  std::string text_;
};

}  // namespace backplane::driver::cuda
