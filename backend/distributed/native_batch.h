// distributed/native_batch.h: the calls of bp.collective that one collective is, until they are queued together.
#pragma once

#include <functional>
#include <vector>

#include "distributed/arguments.h"
#include "distributed/native_group.h"
#include "distributed/reduction.h"
#include "runtime/driver.h"

namespace backplane::distributed {

// What is queued together: of one collective, or of several that are coalesced.
struct NativeGroup::Pending {
  c10::Device device;
  std::chrono::milliseconds timeout;
  const char* name;
  c10::intrusive_ptr<NativeWork> work{};  // once the calls are known
  Tensors kept{};                         // what the engine's stream uses: their memory stays until it has come there
  std::vector<NativeEngine::Queue> calls{};
  std::vector<std::function<void()>> after{};

  void add(const Pending& other);
};

class NativeGroup::Batch final : public Calls {
 public:
  // `is_batched`: among others, so that both ends of a message may be there.
  Batch(const NativeEngine& engine, const Request& request, int rank, int size, bool is_batched);

  bool all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
  bool reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) override;
  bool reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) override;
  bool broadcast(const at::Tensor& tensor, int root) override;
  bool all_gather(const at::Tensor& output, const at::Tensor& input) override;
  bool all_gather(const Tensors& outputs, const at::Tensor& input) override;
  bool gather(const Tensors& outputs, const at::Tensor& input, int root) override;
  bool scatter(const at::Tensor& output, const Tensors& inputs, int root) override;
  bool all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent, bool is_even) override;
  bool all_to_all(const Tensors& outputs, const Tensors& inputs) override;
  // Messages with a tag go through the host, which matches them.
  bool send(const at::Tensor& tensor, int destination, int tag) override;
  bool recv(const at::Tensor& tensor, int source, int tag) override;
  bool recv_from_any(const at::Tensor& tensor, int tag) override;
  bool barrier() override;

  Pending pending;

 private:
  // What the driver reads: the tensor, or a contiguous copy, on the engine's stream: behind what was queued there before.
  at::Tensor reads(const at::Tensor& tensor, const Prepare& prepare = {});
  template <class Make>
  at::Tensor copied(Make make);
  // What it writes; what is not contiguous is copied to its place afterwards. `finish`: on what was written, before that.
  at::Tensor writes(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& finish = {});
  // `call(out, in, dtype, op)` for a reduction of `from` into `to`, which may be undefined. False: the driver has none such.
  template <class Call>
  bool reduces(const c10d::ReduceOp& op, const at::Tensor& from, const at::Tensor& to, Call call);
  void sends(const at::Tensor& from, int32_t peer);
  void receives(const at::Tensor& to, int32_t peer);

  // slot: of bp_collective, called as slot(self, comm, stream, arguments...).
  template <auto Slot, class... Arguments>
  void call(Arguments... arguments) {
    pending.calls.push_back([=, device = pending.device](bp_comm* comm, bp_stream* stream) {
      check_collective(detail::invoke<Slot>(open_driver(), comm, stream, arguments...), detail::slot_name<Slot>().c_str(), device);
    });
  }

  const NativeEngine& engine_;
  const int32_t rank_, size_;
  const bool is_batched_;
};

}  // namespace backplane::distributed
