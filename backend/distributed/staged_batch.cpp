// distributed/staged_batch.cpp: see staged_batch.h.
#include "distributed/staged_batch.h"

#include <algorithm>

#include "distributed/recording.h"
#include "distributed/reduction.h"
#include "runtime/driver.h"

namespace backplane::distributed {
namespace staged_batch_impl {
namespace {

using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

// A larger all_reduce is cut, so that the copies of one part go on during the network's time of another.
constexpr int64_t kCutFrom = 16 << 20;
constexpr int64_t kPart = 8 << 20;

bool have_one_size(const Tensors& tensors, const at::Tensor& as) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& one) { return one.numel() == as.numel(); });
}

}  // namespace
}  // namespace staged_batch_impl

using namespace staged_batch_impl;

StagedGroup::Batch::Batch(StagedGroup& group, c10d::OpType type, const char* title, c10::Device device, milliseconds timeout,
                          const Tensors& inputs)
    : group_(group),
      type_(type),
      title_(title),
      device_(device),
      timeout_(timeout),
      input_(inputs.empty() ? at::Tensor() : inputs[0]),
      is_coalesced_(group.coalesced_ != nullptr) {
  work_ =
      is_coalesced_ ? group.coalesced_ : c10::make_intrusive<StagedWork>(group.getRank(), type, title, ++group.sequence_, device, inputs);
}

StagedGroup::Work StagedGroup::Batch::end(const Tensors& results) const {
  for (const at::Tensor& result : results) work_->add_result(result);
  const Recording recording(group_, *group_.options_, type_, group_.sequence_, input_, results);
  if (!is_coalesced_) group_.end(*work_, device_);
  return work_;
}

void StagedGroup::Batch::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  const HostReduction reduction(op, tensor.scalar_type(), group_.getSize());
  const at::Tensor input = with_factor(tensor, op);
  const auto reduce = [&](const at::Tensor& from, const at::Tensor& to) {
    const auto call = this->call();
    const at::Tensor host = call->exchanges(from, to);
    const auto sent = std::make_shared<at::Tensor>();
    submit(
        call,
        [=](c10d::Backend& gloo, milliseconds timeout) {
          *sent = reduction.encode(host);
          Tensors tensors{*sent};
          c10d::AllreduceOptions options;
          options.reduceOp = reduction.op();
          return gloo.allreduce(tensors, with_timeout(options, timeout));
        },
        [=] { reduction.decode(*sent, host); });
  };
  const int64_t part = kPart / tensor.element_size();
  if (static_cast<int64_t>(tensor.nbytes()) < kCutFrom || !tensor.is_contiguous() || !input.is_contiguous() || loaded_driver()->zero_copy) {
    return reduce(input, tensor);
  }
  const at::Tensor from = input.view(-1), to = input.is_same(tensor) ? from : tensor.view(-1);
  for (int64_t at = 0; at < tensor.numel(); at += part) {
    const int64_t length = std::min(part, tensor.numel() - at);
    const at::Tensor piece = from.narrow(0, at, length);
    reduce(piece, to.is_same(from) ? piece : to.narrow(0, at, length));
  }
}

void StagedGroup::Batch::broadcast(const at::Tensor& tensor, int root, const at::Tensor& from) const {
  const auto call = this->call();
  const bool is_root = group_.getRank() == root;
  const at::Tensor host = !is_root ? call->writes(tensor) : from.defined() ? call->exchanges(from, tensor) : call->reads(tensor);
  submit(call, [=](c10d::Backend& gloo, milliseconds timeout) {
    Tensors tensors{host.view(at::kByte)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return gloo.broadcast(tensors, with_timeout(options, timeout));
  });
}

void StagedGroup::Batch::reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) const {
  const HostReduction reduction(op, from.scalar_type(), group_.getSize());
  const auto call = this->call();
  const bool is_root = group_.getRank() == root;
  const at::Tensor input = with_factor(from, op);
  const at::Tensor host = is_root ? call->exchanges(input, to) : call->reads(input, Given::overwritten);
  const auto sent = std::make_shared<at::Tensor>();
  submit(
      call,
      [=](c10d::Backend& gloo, milliseconds timeout) {
        *sent = reduction.encode(host);
        Tensors tensors{*sent};
        c10d::ReduceOptions options;
        options.reduceOp = reduction.op();
        options.rootRank = root;
        return gloo.reduce(tensors, with_timeout(options, timeout));
      },
      [=] {
        if (is_root) reduction.decode(*sent, host);
      });
}

void StagedGroup::Batch::all_gather(const at::Tensor& output, const at::Tensor& input) const {
  check_size(output.numel(), input.numel() * group_.getSize(), name(), "the output");
  check_dtype(output, input, name());
  const auto call = this->call();
  const at::Tensor from = call->reads(input), to = call->writes(output);
  submit(call, [=](c10d::Backend& gloo, milliseconds timeout) {
    at::Tensor sent = from.view(at::kByte), received = to.view(at::kByte);
    return gloo._allgather_base(received, sent, with_timeout(c10d::AllgatherOptions(), timeout));
  });
}

void StagedGroup::Batch::all_gather(const Tensors& outputs, const at::Tensor& input) const {
  const at::Tensor& own = outputs[static_cast<size_t>(group_.getRank())];
  for (const at::Tensor& output : outputs) check_dtype(output, input, name());
  check_size(own.numel(), input.numel(), name(), "the output of the own rank");
  if (!have_one_size(outputs, input)) {
    for (size_t root = 0; root < outputs.size(); ++root) broadcast(outputs[root], static_cast<int>(root), input);
    return;
  }
  const auto call = this->call();
  const at::Tensor from = call->reads(input);
  Tensors to;
  for (const at::Tensor& output : outputs) to.push_back(call->writes(output).view(at::kByte));
  submit(call, [=](c10d::Backend& gloo, milliseconds timeout) {
    Tensors sent{from.view(at::kByte)};
    std::vector<Tensors> received{to};
    return gloo.allgather(received, sent, with_timeout(c10d::AllgatherOptions(), timeout));
  });
}

void StagedGroup::Batch::reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) const {
  check_size(input.numel(), output.numel() * group_.getSize(), name(), "the input");
  check_dtype(output, input, name());
  const HostReduction reduction(op, input.scalar_type(), group_.getSize());
  const auto call = this->call();
  const at::Tensor from = call->reads(with_factor(input, op), Given::overwritten), to = call->writes(output);
  const auto received = std::make_shared<at::Tensor>();
  submit(
      call,
      [=](c10d::Backend& gloo, milliseconds timeout) {
        at::Tensor sent = reduction.encode(from);
        *received = reduction.encode(to);
        c10d::ReduceScatterOptions options;
        options.reduceOp = reduction.op();
        return gloo._reduce_scatter_base(*received, sent, with_timeout(options, timeout));
      },
      [=] { reduction.decode(*received, to); });
}

}  // namespace backplane::distributed
