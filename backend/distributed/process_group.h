// distributed/process_group.h: the device's process group for torch.distributed: checks the arguments of each collective, and makes the
// calls of which it consists (calls.h), which a transport runs (transport.h).
#pragma once

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/calls.h"
#include "distributed/native_transport.h"
#include "distributed/staged_transport.h"

namespace backplane::distributed {

// Makes a Gloo group: store, rank, size, timeout. Blocks until all ranks have joined.
using GlooFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                                    std::chrono::milliseconds timeout)>;

// Tensors must be on this device type; any dtype and strides. Ranks must agree about sizes and dtypes. Errors: c10::ValueError for wrong
// tensors, c10::DistBackendError for all others; after one of the latter, all calls raise it. Threads: those that use one group must call
// in an order that is the same on all ranks.
class ProcessGroup : public c10d::Backend {
 public:
  // Its transports, at least one: the driver's links if `is_native`, then the host if torch has Gloo, for which it blocks until all ranks
  // have joined.
  //
  // Note [Gloo of a native group]: it is made at once, although it may never be used: the first staged call may be a message, which only
  // two ranks know of, and Gloo connects all of them.
  ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
               GlooFactory make_gloo, bool is_native);
  ~ProcessGroup() override;

  const std::string getBackendName() const override;
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  const char* engine() const { return native_ != nullptr ? "native" : "staged"; }  // of its first transport

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
  // NULL on a rank that is not in `ranks`.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& ranks, int flags,
                                           const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool all_ranks) override;

  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

 private:
  using Fill = c10::function_ref<bool(Calls&)>;
  // Makes the calls that `fill` adds, by the first transport that supports them. `results`: the tensors that they write.
  Work carry_out(const Request& request, const Tensors& results, Fill fill);
  c10::intrusive_ptr<GroupWork> make_work(const Request& request);
  // For calls without tensors: the device of its communicator, whatever the current device is, because the peers' next call uses it.
  c10::Device own_device();
  // Before there is one, for a native group: the global rank modulo the number of devices, as in NCCL's group.
  c10::Device barrier_device();

  // On the device of `tensor`, where `others` must be. A refused call has not joined, and the group stays usable.
  Request request(c10d::OpType type, const char* title, const at::Tensor& tensor, std::chrono::milliseconds timeout,
                  std::initializer_list<at::TensorList> others = {}) const;
  std::chrono::milliseconds timeout_of(std::chrono::milliseconds asked) const;
  c10::Device device_of(const c10d::BarrierOptions& options);
  void check_gathered(const Tensors& outputs, const at::Tensor& input, const char* name) const;
  // `whole` has a part per rank.
  void check_parts(const at::Tensor& whole, const at::Tensor& part, const char* name, const char* which) const;

  const c10::intrusive_ptr<GroupOptions> options_;
  const std::string title_;  // "process group 'x' (rank 0 of 2)"
  const GlooFactory make_gloo_;
  std::shared_ptr<NativeTransport> native_;             // NULL: none
  std::vector<std::shared_ptr<Transport>> transports_;  // in order of preference
  c10::intrusive_ptr<GroupWork> coalesced_;             // between startCoalescing and endCoalescing
  std::atomic<uint64_t> sequence_{0};
};

}  // namespace backplane::distributed
