// distributed/staged_group.cpp: the collectives and the life of the group; staged_batch.h has what most of them are made of.
#include "distributed/staged_group.h"

#include <ATen/ops/cat.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "distributed/staged_batch.h"

namespace backplane::distributed {
namespace staged_group_impl {
namespace {

using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

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

void StagedGroup::check_message(int peer, const char* name) const {
  check_rank(peer, getSize(), name);
  TORCH_CHECK_VALUE(peer != getRank(), name, ": rank ", peer, " is the caller itself, to which nothing goes by the host: copy the tensor");
}

StagedGroup::Work StagedGroup::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor& tensor = the_one(tensors, "send");
  check_message(destination, "send");
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
  check_message(source, "recv");
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
