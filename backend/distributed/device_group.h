// distributed/device_group.h: the process group of the device as torch.distributed calls it: what each collective asks of its arguments,
// and which calls (calls.h) it is. How those are carried out is an engine's: staged_group.h, native_group.h.
#pragma once

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "distributed/calls.h"
#include "torch/distributed.h"

namespace backplane::distributed {

// torch's ProcessGroup's `options`.
struct GroupOptions : c10d::Backend::Options {
  explicit GroupOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout);
  virtual c10::intrusive_ptr<c10d::Backend::Options> clone() const BACKPLANE_OVERRIDE_FROM_2_14;
};

// Tensors are of this device type, of any dtype and strides; ranks agree about sizes and dtypes. Errors: c10::ValueError for wrong tensors,
// c10::DistBackendError for everything else that goes wrong; after one of the latter, all calls raise it. Threads: those of one group must
// agree about an order in which all ranks call.
class DeviceGroup : public c10d::Backend {
 public:
  DeviceGroup(int rank, int size, c10::intrusive_ptr<GroupOptions> options);

  const std::string getBackendName() const override;
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  virtual const char* engine() const = 0;  // "staged"

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

  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& ranks, int flags,
                                           const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool all_ranks) override;

  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

 protected:
  // One collective, as the caller asks for it.
  struct Request {
    c10d::OpType type;
    const char* title;  // BACKPLANE_TITLE("all_reduce")
    c10::Device device;
    std::chrono::milliseconds timeout;
    at::Tensor input;  // one that it reads; undefined: it has none
  };
  using Fill = c10::function_ref<bool(Calls&)>;
  // Makes the calls that `fill` puts in; `results`: what they write.
  virtual Work carry_out(const Request& request, const Tensors& results, Fill fill) = 0;
  // Of a call without tensors.
  virtual c10::Device own_device();
  virtual c10::Device barrier_device();

  const c10::intrusive_ptr<GroupOptions> options_;
  const std::string title_;  // "process group 'x' (rank 0 of 2)"
  std::atomic<uint64_t> sequence_{0};

 private:
  // On the device of `tensor`, where the `others` must be: a call that is refused has joined nothing, and the group goes on.
  Request request(c10d::OpType type, const char* title, const at::Tensor& tensor, std::chrono::milliseconds timeout,
                  std::initializer_list<at::TensorList> others = {}) const;
  std::chrono::milliseconds timeout_of(std::chrono::milliseconds asked) const;
  c10::Device device_of(const c10d::BarrierOptions& options);
  void check_gathered(const Tensors& outputs, const at::Tensor& input, const char* name) const;
};

}  // namespace backplane::distributed
