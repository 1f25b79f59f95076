// distributed/staged_calls.h: the calls of one collective of the staged transport: the tensors that each reads and writes, and Gloo's call.
// Data that is only moved is sent as bytes.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "distributed/arguments.h"
#include "distributed/calls.h"
#include "distributed/reduction.h"
#include "distributed/staged_transport.h"

namespace backplane::distributed {

class StagedCalls final : public Calls {
 public:
  StagedCalls(StagedTransport& transport, const Request& request)
      : transport_(transport), request_(request), fingerprint_(std::make_unique<Fingerprint>(request.type)) {}

  bool all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
  bool reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) override;
  bool reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) override;
  bool broadcast(const at::Tensor& from, const at::Tensor& to, int root) override;
  bool all_gather(const at::Tensor& output, const at::Tensor& input) override;
  bool all_gather(const Tensors& outputs, const at::Tensor& input) override;
  bool gather(const Tensors& outputs, const at::Tensor& input, int root) override;
  bool scatter(const at::Tensor& output, const Tensors& inputs, int root) override;
  bool all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent, bool is_even) override;
  bool all_to_all(const Tensors& outputs, const Tensors& inputs) override;
  bool send(const at::Tensor& tensor, int destination, int tag) override;
  bool recv(const at::Tensor& tensor, int source, int tag) override;
  bool recv_from_any(const at::Tensor& tensor, int tag) override;
  bool barrier(c10::Device device) override;

  void submit(const c10::intrusive_ptr<GroupWork>& work) override;

 private:
  using Call = std::shared_ptr<StagedCall>;
  using GloosWork = StagedCall::GloosWork;
  const char* name() const { return name_in(request_.title); }
  Call call() const { return std::make_shared<StagedCall>(name(), request_.device, request_.timeout); }

  // As bytes.
  static Tensors reads_all(const Call& call, const Tensors& tensors);
  static Tensors writes_all(const Call& call, const Tensors& tensors);
  // `start(gloo, timeout)` returns Gloo's Work.
  template <class Start>
  void add(const Call& call, Start start, std::function<void()> finish = {});
  // A reduction of `host` in place: `start(gloo, tensors, timeout)`. A rank without a result keeps its contents.
  template <class Start>
  void add_reduction(const Call& call, const HostReduction& reduction, const at::Tensor& host, bool has_result, Start start);
  // Note [Messages]: a message begins with its size, followed by the data that fits into the same packet. The rest has a tag that the
  // sender chooses; the receiver requests it once it knows the size.
  Call message() const;
  template <class Start>
  void receive(const at::Tensor& tensor, Start start);  // start(gloo, packets)
  void check_tag(int tag) const;

  StagedTransport& transport_;
  const Request request_;
  std::vector<Call> calls_;
  std::unique_ptr<Fingerprint> fingerprint_;  // for a collective
};

}  // namespace backplane::distributed
