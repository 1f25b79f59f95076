// distributed/staged_group.h: the process group of the device, as torch.distributed calls it: all collectives, on every driver, by way of
// the host. Note [Staged calls] (staged_engine.h) tells how.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/staged_engine.h"
#include "torch/distributed.h"

namespace backplane::distributed {

// torch's ProcessGroup's `options`.
struct GroupOptions : c10d::Backend::Options {
  explicit GroupOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout);
  virtual c10::intrusive_ptr<c10d::Backend::Options> clone() const BACKPLANE_OVERRIDE_FROM_2_14;
};

// Makes a Gloo group: store, rank, size, timeout. Blocks until all ranks are there.
using GlooFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                                    std::chrono::milliseconds timeout)>;

// Tensors are of this device type, of any dtype and strides; ranks agree about sizes and dtypes. Errors: c10::ValueError for wrong tensors,
// c10::DistBackendError for everything else that goes wrong; after one of the latter, all calls raise it. Threads: those of one group must
// agree about an order in which all ranks call.
class StagedGroup : public c10d::Backend {
 public:
  // Blocks until all ranks are there.
  StagedGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
              GlooFactory make_gloo);
  ~StagedGroup() override;

  const std::string getBackendName() const override;
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  virtual const char* engine() const { return "staged"; }

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                     const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int destination, int tag) override;
  Work recv(Tensors& tensors, int source, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;
  // NULL on a rank that is not among `ranks`.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& ranks, int flags,
                                           const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool all_ranks) override;

  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 protected:
  // What a split of the group becomes.
  virtual c10::intrusive_ptr<c10d::Backend> make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                      c10::intrusive_ptr<GroupOptions> options);
  std::chrono::milliseconds timeout_of(std::chrono::milliseconds asked) const;
  // Of a call without tensors.
  virtual c10::Device own_device();
  c10::Device device_of(const c10d::BarrierOptions& options);

  const GlooFactory make_gloo_;
  const c10::intrusive_ptr<GroupOptions> options_;
  std::string title_;  // "process group 'x' (rank 0 of 2)"
  std::atomic<uint64_t> sequence_{0};

 private:
  // The calls of one collective, which share a Work.
  class Batch;
  Batch begin(c10d::OpType type, const char* title, const at::Tensor& tensor, std::chrono::milliseconds timeout);
  void end(StagedWork& work, c10::Device device);
  void check_message(int peer, const char* name) const;

  const std::shared_ptr<StagedEngine> engine_;
  c10::intrusive_ptr<StagedWork> coalesced_;  // between startCoalescing and endCoalescing
};

}  // namespace backplane::distributed
