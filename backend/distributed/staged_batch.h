// distributed/staged_batch.h: the calls of one collective of the staged engine: what each reads and writes, and what Gloo is asked for.
// Data that is only moved goes as bytes.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "distributed/arguments.h"
#include "distributed/reduction.h"
#include "distributed/staged_group.h"

namespace backplane::distributed {

class StagedGroup::Batch final : public Calls {
 public:
  Batch(StagedGroup& group, const Request& request)
      : group_(group), request_(request), agreement_(std::make_unique<Agreement>(request.type)) {}

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
  bool send(const at::Tensor& tensor, int destination, int tag) override;
  bool recv(const at::Tensor& tensor, int source, int tag) override;
  bool recv_from_any(const at::Tensor& tensor, int tag) override;
  bool barrier() override;

  // Queues them, in their order, as parts of `work`.
  void submit(const c10::intrusive_ptr<StagedWork>& work);

 private:
  using Call = std::shared_ptr<StagedCall>;
  using GloosWork = StagedCall::GloosWork;
  const char* name() const { return name_in(request_.title); }
  Call call() const { return std::make_shared<StagedCall>(name(), request_.device, request_.timeout); }

  // `start(gloo, timeout)` gives the Work of Gloo.
  template <class Start>
  void add(const Call& call, Start start, std::function<void()> finish = {});
  // A reduction of `host` in place: `start(gloo, tensors, timeout)`; who has no result keeps what is there.
  template <class Start>
  void add_reduction(const Call& call, const HostReduction& reduction, const at::Tensor& host, bool has_result, Start start);
  void broadcast(const at::Tensor& tensor, int root, const at::Tensor& from);
  // Note [Messages]: a message begins with its size, and has that of its data which fits into one packet. The rest has a tag that the
  // sender makes for it; the receiver takes it once it knows the size.
  Call message() const;
  template <class Start>
  void receive(const at::Tensor& tensor, Start start);  // start(gloo, packets)
  bool is_own(int peer) const;                          // the rank itself; outside of a batch that is refused
  void check_tag(int tag) const;

  StagedGroup& group_;
  const Request request_;
  std::vector<Call> calls_;
  std::unique_ptr<Agreement> agreement_;  // of a collective
};

}  // namespace backplane::distributed
