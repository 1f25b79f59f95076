// distributed/staged_group.cpp: what each collective reads and writes, and what Gloo is asked for. Data that is only moved goes as bytes.
#include "distributed/staged_group.h"

#include <ATen/ops/cat.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/reduction.h"
#include "runtime/driver.h"

namespace backplane::distributed {
namespace staged_group_impl {
namespace {

using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

// A larger all_reduce is cut, so that the copies of one part go on during the network's time of another.
constexpr int64_t kCutFrom = 16 << 20;
constexpr int64_t kPart = 8 << 20;

bool have_one_size(const Tensors& tensors, const at::Tensor& as) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& one) { return one.numel() == as.numel(); });
}

template <class T>
T with_timeout(T options, milliseconds timeout) {
  options.timeout = timeout;
  return options;
}

}  // namespace
}  // namespace staged_group_impl

using namespace staged_group_impl;

GroupOptions::GroupOptions(milliseconds timeout) : c10d::Backend::Options(BACKPLANE_DEVICE_NAME "ccl", timeout) {}

c10::intrusive_ptr<c10d::Backend::Options> GroupOptions::clone() const { return c10::make_intrusive<GroupOptions>(*this); }

StagedGroup::StagedGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
                         GlooFactory make_gloo)
    : Backend(rank, size),
      make_gloo_(std::move(make_gloo)),
      options_(std::move(options)),
      title_(c10::str("process group '", options_->group_name, "' (rank ", rank, " of ", size, ")")),
      engine_(std::make_shared<StagedEngine>(title_, make_gloo_(store, rank, size, options_->timeout))) {
  init();
}

StagedGroup::~StagedGroup() { engine_->shutdown(); }

const std::string StagedGroup::getBackendName() const { return BACKPLANE_DEVICE_NAME "ccl"; }
c10::intrusive_ptr<c10d::Backend::Options> StagedGroup::getBackendOptions() { return options_; }

milliseconds StagedGroup::timeout_of(milliseconds asked) const { return asked == c10d::kUnsetTimeout ? options_->timeout : asked; }

c10::Device StagedGroup::own_device() { return bound_device_id_.value_or(c10::Device(kDevice, current_device())); }

c10::Device StagedGroup::device_of(const c10d::BarrierOptions& options) {
  c10::Device device = own_device();
  if (!options.device_ids.empty()) device = {kDevice, static_cast<c10::DeviceIndex>(options.device_ids[0])};
  if (options.device && options.device->type() == kDevice && options.device->has_index()) device = *options.device;
  return {kDevice, resolve_device(device.index())};
}

class StagedGroup::Batch {
 public:
  Batch(StagedGroup& group, c10d::OpType type, const char* title, c10::Device device, milliseconds timeout, const Tensors& inputs)
      : group_(group), title_(title), device_(device), timeout_(timeout), is_coalesced_(group.coalesced_ != nullptr) {
    work_ =
        is_coalesced_ ? group.coalesced_ : c10::make_intrusive<StagedWork>(group.getRank(), type, title, ++group.sequence_, device, inputs);
  }

  std::shared_ptr<StagedCall> call() const { return std::make_shared<StagedCall>(name(), device_, work_, timeout_); }

  const char* name() const { return name_in(title_); }

  // `start(gloo, timeout)` gives the Work of Gloo.
  template <class Start>
  void submit(const std::shared_ptr<StagedCall>& call, Start start, std::function<void()> finish = {}) const {
    for (const HostCopy& copy : call->copies) check_on(copy.tensor(), device_, name());
    call->start = [gloo = group_.engine_->gloo(), start](milliseconds timeout) mutable { return start(*gloo, timeout); };
    call->finish = std::move(finish);
    work_->add_part();
    group_.engine_->submit(call);
  }

  Work end(const Tensors& results = {}) const {
    for (const at::Tensor& result : results) work_->add_result(result);
    if (!is_coalesced_) group_.end(*work_, device_);
    return work_;
  }

  void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
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
    if (static_cast<int64_t>(tensor.nbytes()) < kCutFrom || !tensor.is_contiguous() || !input.is_contiguous() ||
        loaded_driver()->zero_copy) {
      return reduce(input, tensor);
    }
    const at::Tensor from = input.view(-1), to = input.is_same(tensor) ? from : tensor.view(-1);
    for (int64_t at = 0; at < tensor.numel(); at += part) {
      const int64_t length = std::min(part, tensor.numel() - at);
      const at::Tensor piece = from.narrow(0, at, length);
      reduce(piece, to.is_same(from) ? piece : to.narrow(0, at, length));
    }
  }

  // `from`: what the root sends if it is not `tensor`.
  void broadcast(const at::Tensor& tensor, int root, const at::Tensor& from = {}) const {
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

  // `to`: where the root gets the result; others' is left alone.
  void reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) const {
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

  void all_gather(const at::Tensor& output, const at::Tensor& input) const {
    check_size(output.numel(), input.numel() * group_.getSize(), name(), "the output");
    check_dtype(output, input, name());
    const auto call = this->call();
    const at::Tensor from = call->reads(input), to = call->writes(output);
    submit(call, [=](c10d::Backend& gloo, milliseconds timeout) {
      at::Tensor sent = from.view(at::kByte), received = to.view(at::kByte);
      return gloo._allgather_base(received, sent, with_timeout(c10d::AllgatherOptions(), timeout));
    });
  }

  // Sizes may differ between ranks; then each sends its own.
  void all_gather(const Tensors& outputs, const at::Tensor& input) const {
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

  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) const {
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

 private:
  StagedGroup& group_;
  const char* title_;
  c10::Device device_;
  milliseconds timeout_;
  bool is_coalesced_;
  c10::intrusive_ptr<StagedWork> work_;
};

StagedGroup::Batch StagedGroup::begin(c10d::OpType type, const char* title, const at::Tensor& tensor, milliseconds timeout) {
  check_device(tensor, name_in(title));
  return {*this, type, title, tensor.device(), timeout_of(timeout), {tensor}};
}

void StagedGroup::end(StagedWork& work, c10::Device device) {
  const c10::StreamGuard guard(engine_->copies_out(device));
  work.finish_part(nullptr);
}

StagedGroup::Work StagedGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "broadcast");
  check_rank(options.rootRank, getSize(), "broadcast");
  const Batch batch = begin(c10d::OpType::BROADCAST, BACKPLANE_TITLE("broadcast"), tensor, options.timeout);
  batch.broadcast(tensor, static_cast<int>(options.rootRank));
  return batch.end(tensors);
}

StagedGroup::Work StagedGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "all_reduce");
  const Batch batch = begin(c10d::OpType::ALLREDUCE, BACKPLANE_TITLE("all_reduce"), tensor, options.timeout);
  batch.all_reduce(tensor, options.reduceOp);
  return batch.end(tensors);
}

StagedGroup::Work StagedGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced takes at least one tensor");
  const Batch batch = begin(c10d::OpType::ALLREDUCE_COALESCED, BACKPLANE_TITLE("all_reduce_coalesced"), tensors[0], options.timeout);
  for (const at::Tensor& tensor : tensors) batch.all_reduce(tensor, options.reduceOp);
  return batch.end(tensors);
}

StagedGroup::Work StagedGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "reduce");
  check_rank(options.rootRank, getSize(), "reduce");
  const Batch batch = begin(c10d::OpType::REDUCE, BACKPLANE_TITLE("reduce"), tensor, options.timeout);
  batch.reduce(tensor, tensor, static_cast<int>(options.rootRank), options.reduceOp);
  return batch.end(tensors);
}

StagedGroup::Work StagedGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "all_gather");
  const Tensors& of_all = of_ranks(outputs, getSize(), "all_gather");
  const Batch batch = begin(c10d::OpType::ALLGATHER, BACKPLANE_TITLE("all_gather"), input, options.timeout);
  batch.all_gather(of_all, input);
  return batch.end(of_all);
}

StagedGroup::Work StagedGroup::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  const Batch batch = begin(c10d::OpType::_ALLGATHER_BASE, BACKPLANE_TITLE("_all_gather_base"), input, options.timeout);
  batch.all_gather(output, input);
  return batch.end({output});
}

StagedGroup::Work StagedGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && outputs.size() == static_cast<size_t>(getSize()),
                    "all_gather_coalesced takes inputs, and for each of ", getSize(), " ranks a list of outputs");
  const Batch batch = begin(c10d::OpType::ALLGATHER_COALESCED, BACKPLANE_TITLE("all_gather_coalesced"), inputs[0], options.timeout);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_all;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "all_gather_coalesced: a list of outputs has ", of_rank.size(),
                        " tensors, there are ", inputs.size(), " inputs");
      of_all.push_back(of_rank[i]);
    }
    batch.all_gather(of_all, inputs[i]);
  }
  Tensors results;
  for (const Tensors& of_rank : outputs) results.insert(results.end(), of_rank.begin(), of_rank.end());
  return batch.end(results);
}

StagedGroup::Work StagedGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "all_gather_into_tensor_coalesced takes as many outputs as inputs");
  const Batch batch = begin(c10d::OpType::COALESCED, BACKPLANE_TITLE("all_gather_into_tensor_coalesced"), inputs[0], options.timeout);
  for (size_t i = 0; i < inputs.size(); ++i) batch.all_gather(outputs[i], inputs[i]);
  return batch.end(outputs);
}

StagedGroup::Work StagedGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "gather");
  check_rank(options.rootRank, getSize(), "gather");
  const Batch batch = begin(c10d::OpType::GATHER, BACKPLANE_TITLE("gather"), input, options.timeout);
  const bool is_root = getRank() == options.rootRank;
  TORCH_CHECK_VALUE(is_root || outputs.empty(), "gather: only rank ", options.rootRank, ", the root, has outputs");
  const auto call = batch.call();
  const at::Tensor from = call->reads(input);
  Tensors to;
  if (is_root) {
    for (const at::Tensor& output : of_ranks(outputs, getSize(), "gather")) {
      check_dtype(output, input, batch.name());
      to.push_back(call->writes(output).view(at::kByte));
    }
  }
  batch.submit(call, [=, root = options.rootRank](c10d::Backend& gloo, milliseconds timeout) {
    Tensors sent{from.view(at::kByte)};
    std::vector<Tensors> received;
    if (!to.empty()) received.push_back(to);
    c10d::GatherOptions gather;
    gather.rootRank = root;
    return gloo.gather(received, sent, with_timeout(gather, timeout));
  });
  return batch.end(is_root ? outputs[0] : Tensors{});
}

StagedGroup::Work StagedGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor& output = the_one(outputs, "scatter");
  check_rank(options.rootRank, getSize(), "scatter");
  const Batch batch = begin(c10d::OpType::SCATTER, BACKPLANE_TITLE("scatter"), output, options.timeout);
  const bool is_root = getRank() == options.rootRank;
  TORCH_CHECK_VALUE(is_root || inputs.empty(), "scatter: only rank ", options.rootRank, ", the root, has inputs");
  const auto call = batch.call();
  const at::Tensor to = call->writes(output);
  Tensors from;
  if (is_root) {
    for (const at::Tensor& input : of_ranks(inputs, getSize(), "scatter")) {
      check_dtype(output, input, batch.name());
      from.push_back(call->reads(input).view(at::kByte));
    }
  }
  batch.submit(call, [=, root = options.rootRank](c10d::Backend& gloo, milliseconds timeout) {
    Tensors received{to.view(at::kByte)};
    std::vector<Tensors> sent;
    if (!from.empty()) sent.push_back(from);
    c10d::ScatterOptions scatter;
    scatter.rootRank = root;
    return gloo.scatter(received, sent, with_timeout(scatter, timeout));
  });
  return batch.end(outputs);
}

StagedGroup::Work StagedGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = the_one(outputs, "reduce_scatter");
  const Tensors& of_all = of_ranks(inputs, getSize(), "reduce_scatter");
  const Batch batch = begin(c10d::OpType::REDUCE_SCATTER, BACKPLANE_TITLE("reduce_scatter"), output, options.timeout);
  for (const at::Tensor& input : of_all) check_dtype(output, input, batch.name());
  for (int root = 0; root < getSize(); ++root) batch.reduce(of_all[static_cast<size_t>(root)], output, root, options.reduceOp);
  return batch.end(outputs);
}

StagedGroup::Work StagedGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  const Batch batch = begin(c10d::OpType::_REDUCE_SCATTER_BASE, BACKPLANE_TITLE("_reduce_scatter_base"), output, options.timeout);
  batch.reduce_scatter(output, input, options.reduceOp);
  return batch.end({output});
}

StagedGroup::Work StagedGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                               const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "reduce_scatter_tensor_coalesced takes as many outputs as inputs");
  const Batch batch =
      begin(compat::kReduceScatterTensorCoalesced, BACKPLANE_TITLE("reduce_scatter_tensor_coalesced"), inputs[0], options.timeout);
  for (size_t i = 0; i < inputs.size(); ++i) batch.reduce_scatter(outputs[i], inputs[i], options.reduceOp);
  return batch.end(outputs);
}

StagedGroup::Work StagedGroup::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                             std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  const Batch batch = begin(c10d::OpType::ALLTOALL_BASE, BACKPLANE_TITLE("all_to_all"), input, options.timeout);
  check_dtype(output, input, batch.name());
  auto sent_bytes = split_bytes(input, input_splits, getSize(), "input");
  auto received_bytes = split_bytes(output, output_splits, getSize(), "output");
  const auto call = batch.call();
  const at::Tensor from = call->reads(input), to = call->writes(output);
  batch.submit(call, [=](c10d::Backend& gloo, milliseconds timeout) mutable {
    at::Tensor sent = from.view(at::kByte), received = to.view(at::kByte);
    return gloo.alltoall_base(received, sent, received_bytes, sent_bytes, with_timeout(c10d::AllToAllOptions(), timeout));
  });
  return batch.end({output});
}

StagedGroup::Work StagedGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(inputs.size() == ranks && outputs.size() == ranks, "all_to_all takes ", ranks,
                    " inputs and outputs, one for each rank, not ", inputs.size(), " and ", outputs.size());
  const Batch batch = begin(c10d::OpType::ALLTOALL, BACKPLANE_TITLE("all_to_all"), inputs[0], options.timeout);
  const auto call = batch.call();
  Tensors from, to;
  std::vector<int64_t> sent_bytes, received_bytes;
  for (size_t i = 0; i < ranks; ++i) {
    check_dtype(outputs[i], inputs[i], batch.name());
    from.push_back(call->reads(inputs[i]).view(at::kByte));
    to.push_back(call->writes(outputs[i]).view(at::kByte));
    sent_bytes.push_back(from.back().numel());
    received_bytes.push_back(to.back().numel());
  }
  const auto received = std::make_shared<at::Tensor>();
  batch.submit(
      call,
      [=](c10d::Backend& gloo, milliseconds timeout) mutable {
        at::Tensor sent = at::cat(from);
        *received = at::cat(to);
        return gloo.alltoall_base(*received, sent, received_bytes, sent_bytes, with_timeout(c10d::AllToAllOptions(), timeout));
      },
      [=] {
        int64_t at = 0;
        for (const at::Tensor& one : to) {
          one.copy_(received->narrow(0, at, one.numel()));
          at += one.numel();
        }
      });
  return batch.end(outputs);
}

StagedGroup::Work StagedGroup::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor& tensor = the_one(tensors, "send");
  check_rank(destination, getSize(), "send");
  const Batch batch = begin(c10d::OpType::SEND, BACKPLANE_TITLE("send"), tensor, c10d::kUnsetTimeout);
  const auto call = batch.call();
  const at::Tensor host = call->reads(tensor);
  batch.submit(call, [=](c10d::Backend& gloo, milliseconds) {
    Tensors bytes{host.view(at::kByte)};
    return gloo.send(bytes, destination, tag);
  });
  return batch.end(tensors);
}

StagedGroup::Work StagedGroup::recv(Tensors& tensors, int source, int tag) {
  const at::Tensor& tensor = the_one(tensors, "recv");
  check_rank(source, getSize(), "recv");
  const Batch batch = begin(c10d::OpType::RECV, BACKPLANE_TITLE("recv"), tensor, c10d::kUnsetTimeout);
  const auto call = batch.call();
  const at::Tensor host = call->writes(tensor);
  batch.submit(call, [=](c10d::Backend& gloo, milliseconds) {
    Tensors bytes{host.view(at::kByte)};
    return gloo.recv(bytes, source, tag);
  });
  return batch.end(tensors);
}

StagedGroup::Work StagedGroup::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = the_one(tensors, "recv");
  const Batch batch = begin(c10d::OpType::RECVANYSOURCE, BACKPLANE_TITLE("recvAnySource"), tensor, c10d::kUnsetTimeout);
  const auto call = batch.call();
  const at::Tensor host = call->writes(tensor);
  batch.submit(call, [=](c10d::Backend& gloo, milliseconds) {
    Tensors bytes{host.view(at::kByte)};
    return gloo.recvAnysource(bytes, tag);
  });
  return batch.end(tensors);
}

StagedGroup::Work StagedGroup::barrier(const c10d::BarrierOptions& options) {
  const Batch batch(*this, c10d::OpType::BARRIER, BACKPLANE_TITLE("barrier"), device_of(options), timeout_of(options.timeout), {});
  batch.submit(batch.call(),
               [](c10d::Backend& gloo, milliseconds timeout) { return gloo.barrier(with_timeout(c10d::BarrierOptions(), timeout)); });
  return batch.end();
}

void StagedGroup::startCoalescing() {
  TORCH_CHECK(coalesced_ == nullptr, "a batch of collectives of this group has begun already; they do not nest");
  coalesced_ = c10::make_intrusive<StagedWork>(getRank(), c10d::OpType::COALESCED, BACKPLANE_TITLE("coalesced"), ++sequence_, own_device(),
                                               Tensors{});
}

StagedGroup::Work StagedGroup::endCoalescing() {
  TORCH_CHECK(coalesced_ != nullptr, "no batch of collectives of this group has begun");
  const c10::intrusive_ptr<StagedWork> work = std::exchange(coalesced_, {});
  end(*work, own_device());
  return work;
}

c10::intrusive_ptr<c10d::Backend> StagedGroup::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) return nullptr;
  auto own = c10::make_intrusive<GroupOptions>(options->timeout);
  own->group_name = options->group_name;
  for (const int rank : ranks) {
    const auto place = static_cast<size_t>(rank);
    own->global_ranks_in_group.push_back(place < options_->global_ranks_in_group.size() ? options_->global_ranks_in_group[place] : place);
  }
  auto part = make_part(store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), std::move(own));
  part->setBoundDeviceId(getBoundDeviceId());
  return part;
}

c10::intrusive_ptr<c10d::Backend> StagedGroup::make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                         c10::intrusive_ptr<GroupOptions> options) {
  return c10::make_intrusive<StagedGroup>(store, rank, size, std::move(options), make_gloo_);
}

c10::intrusive_ptr<c10d::Backend> StagedGroup::shrink(const std::vector<int64_t>&, int, const c10::intrusive_ptr<c10d::Backend::Options>&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, getBackendName(),
                              " cannot shrink a group: destroy it, and call init_process_group with the ranks that are left");
}

void StagedGroup::monitoredBarrier(const c10d::BarrierOptions&, bool) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, getBackendName(),
      " has no monitored barrier; Gloo has: monitored_barrier(group=torch.distributed.new_group(backend=\"gloo\"))");
}

c10d::ErrorType StagedGroup::getError() { return engine_->failure() == nullptr ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR; }

void StagedGroup::abort() { engine_->abort("was aborted"); }
void StagedGroup::shutdown() { engine_->shutdown(); }

}  // namespace backplane::distributed
