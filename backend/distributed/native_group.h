// distributed/native_group.h: the process group over the driver's own links: what bp.collective takes is queued on a stream, and the host
// waits for nothing; the rest goes the way of staged_group.h.
#pragma once

#include <memory>
#include <mutex>

#include "distributed/native_engine.h"
#include "distributed/native_work.h"
#include "distributed/staged_group.h"

namespace backplane::distributed {

// A communicator for each device that the rank's tensors are on, made by the first collective there, or of init_process_group's device_id;
// ranks come to their devices in the same order. Until it is there, sends and receives are staged: joining takes all ranks. A send and a
// receive that two ranks make in opposite order must be in one batch.
class NativeGroup : public StagedGroup {
 public:
  NativeGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
              GlooFactory make_gloo);
  ~NativeGroup() override;

  const char* engine() const override { return "native"; }
  void eagerConnectSingleDevice(at::Device device) override;

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
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

  void startCoalescing() override;
  Work endCoalescing() override;
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 protected:
  c10::intrusive_ptr<c10d::Backend> make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                              c10::intrusive_ptr<GroupOptions> options) override;

 private:
  class Batch;
  std::shared_ptr<NativeEngine> engine_on(c10::Device device);        // joins, if that was not done
  std::shared_ptr<NativeEngine> engine_if_there(c10::Device device);  // NULL: not yet
  std::vector<std::shared_ptr<NativeEngine>> engines();
  CommunicatorSettings settings() const;
  // The one that it has a communicator for, whatever the current device is: the peers' next call goes there.
  c10::Device own_device() override;
  bool is_batched() const { return batch_ != nullptr; }
  void check_message(int peer, const char* name) const;
  template <class Fill>
  Work queue(c10d::OpType type, const char* title, const at::Tensor& tensor, std::chrono::milliseconds timeout, const Tensors& results,
             Fill fill);
  Work run(Batch& batch, NativeEngine& engine, Work staged);
  template <class Call>
  bool reduces(Batch& batch, const NativeEngine& engine, const c10d::ReduceOp& op, const at::Tensor& from, const at::Tensor& to, Call call);
  bool all_reduce(Batch& batch, const NativeEngine& engine, const at::Tensor& tensor, const c10d::ReduceOp& op);
  void all_gather(Batch& batch, const at::Tensor& output, const at::Tensor& input);
  bool reduce_scatter(Batch& batch, const NativeEngine& engine, const at::Tensor& output, const at::Tensor& input,
                      const c10d::ReduceOp& op);

  const c10::intrusive_ptr<c10d::Store> store_;
  std::mutex connecting_;  // over engines_
  std::vector<std::shared_ptr<NativeEngine>> engines_;
  std::unique_ptr<Batch> batch_;  // between startCoalescing and endCoalescing
};

}  // namespace backplane::distributed
