// distributed/native_calls.h: the calls of bp.collective for one collective, collected to be queued together.
#pragma once

#include <functional>
#include <memory>

#include "distributed/arguments.h"
#include "distributed/calls.h"
#include "distributed/communicator.h"
#include "distributed/reduction.h"
#include "runtime/driver.h"

namespace backplane::distributed {

class NativeTransport;

class NativeCalls final : public Calls {
 public:
  NativeCalls(NativeTransport& transport, std::shared_ptr<Communicator> communicator, const Request& request);

  bool all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
  bool reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) override;
  bool reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) override;
  bool broadcast(const at::Tensor& from, const at::Tensor& to, int root) override;
  using Calls::all_gather;
  bool all_gather(const at::Tensor& output, const at::Tensor& input) override;
  using Calls::all_to_all;
  bool all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent, bool is_even) override;
  // Messages with a tag are staged: the host matches tags.
  bool send(const at::Tensor& tensor, int destination, int tag) override;
  bool recv(const at::Tensor& tensor, int source, int tag) override;
  bool recv_from_any(const at::Tensor&, int) override { return false; }
  // Composed if the driver has no such entry.
  bool gather(const Tensors& outputs, const at::Tensor& input, int root) override;
  bool scatter(const at::Tensor& output, const Tensors& inputs, int root) override;
  bool barrier(c10::Device device) override;

  void submit(const c10::intrusive_ptr<GroupWork>& work) override;

 private:
  // The tensor that the driver reads: this one, or a contiguous copy on the communicator's stream, after its queued work.
  at::Tensor reads(const at::Tensor& tensor, const Prepare& prepare = {});
  template <class Make>
  at::Tensor copied(Make make);
  // The tensor that the driver writes; if it is not `tensor`, it is copied there afterwards. `finish` is called on it before.
  at::Tensor writes(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& finish = {});
  // `call(out, in, dtype, op)` for a reduction of `from` into `to`, which may be undefined. False: the driver does not support it.
  template <class Call>
  bool reduces(const c10d::ReduceOp& op, const at::Tensor& from, const at::Tensor& to, Call call);

  // Slot: of bp_collective, called as slot(self, comm, stream, arguments...).
  template <auto Slot, class... Arguments>
  void call(Arguments... arguments) {
    submission_.calls.push_back([=, device = submission_.device](bp_comm* comm, bp_stream* stream) {
      check_collective(detail::invoke<Slot>(open_driver(), comm, stream, arguments...), detail::slot_name<Slot>().c_str(), device);
    });
  }

  NativeTransport& transport_;
  const std::shared_ptr<Communicator> communicator_;
  const int32_t rank_, size_;
  Submission submission_;
};

}  // namespace backplane::distributed
