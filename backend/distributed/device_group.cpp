// distributed/device_group.cpp: the arguments of each collective, and the calls that it is.
#include "distributed/device_group.h"

#include <algorithm>
#include <utility>

#include "distributed/arguments.h"

namespace backplane::distributed {

using c10d::OpType;
using std::chrono::milliseconds;

GroupOptions::GroupOptions(milliseconds timeout) : c10d::Backend::Options(BACKPLANE_DEVICE_NAME "ccl", timeout) {}

c10::intrusive_ptr<c10d::Backend::Options> GroupOptions::clone() const { return c10::make_intrusive<GroupOptions>(*this); }

DeviceGroup::DeviceGroup(int rank, int size, c10::intrusive_ptr<GroupOptions> options)
    : Backend(rank, size),
      options_(std::move(options)),
      title_(c10::str("process group '", options_->group_name, "' (rank ", rank, " of ", size, ")")) {}

const std::string DeviceGroup::getBackendName() const { return BACKPLANE_DEVICE_NAME "ccl"; }
c10::intrusive_ptr<c10d::Backend::Options> DeviceGroup::getBackendOptions() { return options_; }

milliseconds DeviceGroup::timeout_of(milliseconds asked) const { return asked == c10d::kUnsetTimeout ? options_->timeout : asked; }

c10::Device DeviceGroup::own_device() { return bound_device_id_.value_or(c10::Device(kDevice, current_device())); }

c10::Device DeviceGroup::barrier_device() { return own_device(); }

c10::Device DeviceGroup::device_of(const c10d::BarrierOptions& options) {
  c10::Device device = barrier_device();
  if (!options.device_ids.empty()) device = {kDevice, static_cast<c10::DeviceIndex>(options.device_ids[0])};
  if (options.device && options.device->type() == kDevice && options.device->has_index()) device = *options.device;
  device = {kDevice, resolve_device(device.index())};
  check_bound(device, bound_device_id_, "barrier");
  return device;
}

DeviceGroup::Request DeviceGroup::request(OpType type, const char* title, const at::Tensor& tensor, milliseconds timeout,
                                          std::initializer_list<at::TensorList> others) const {
  const char* name = name_in(title);
  check_device(tensor, name);
  check_bound(tensor.device(), bound_device_id_, name);
  check_on(tensor, tensor.device(), name);
  for (const at::TensorList tensors : others) {
    for (const at::Tensor& other : tensors) check_on(other, tensor.device(), name);
  }
  return {type, title, tensor.device(), timeout_of(timeout), tensor};
}

void DeviceGroup::check_gathered(const Tensors& outputs, const at::Tensor& input, const char* name) const {
  for (const at::Tensor& output : outputs) check_dtype(output, input, name);
  check_size(outputs[static_cast<size_t>(getRank())].numel(), input.numel(), name, "the output of the own rank");
}

DeviceGroup::Work DeviceGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "broadcast");
  const int root = check_rank(options.rootRank, getSize(), "broadcast");
  return carry_out(request(OpType::BROADCAST, BACKPLANE_TITLE("broadcast"), tensor, options.timeout), tensors,
                   [&](Calls& calls) { return calls.broadcast(tensor, root); });
}

DeviceGroup::Work DeviceGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "all_reduce");
  return carry_out(request(OpType::ALLREDUCE, BACKPLANE_TITLE("all_reduce"), tensor, options.timeout), tensors,
                   [&](Calls& calls) { return calls.all_reduce(tensor, options.reduceOp); });
}

DeviceGroup::Work DeviceGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced takes at least one tensor");
  return carry_out(request(OpType::ALLREDUCE_COALESCED, BACKPLANE_TITLE("all_reduce_coalesced"), tensors[0], options.timeout, {tensors}),
                   tensors, [&](Calls& calls) {
                     return std::all_of(tensors.begin(), tensors.end(),
                                        [&](const at::Tensor& tensor) { return calls.all_reduce(tensor, options.reduceOp); });
                   });
}

DeviceGroup::Work DeviceGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "reduce");
  const int root = check_rank(options.rootRank, getSize(), "reduce");
  return carry_out(request(OpType::REDUCE, BACKPLANE_TITLE("reduce"), tensor, options.timeout), tensors,
                   [&](Calls& calls) { return calls.reduce(tensor, tensor, root, options.reduceOp); });
}

DeviceGroup::Work DeviceGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "all_gather");
  const Tensors& of_all = of_ranks(outputs, getSize(), "all_gather");
  check_gathered(of_all, input, "all_gather");
  return carry_out(request(OpType::ALLGATHER, BACKPLANE_TITLE("all_gather"), input, options.timeout, {of_all}), of_all,
                   [&](Calls& calls) { return calls.all_gather(of_all, input); });
}

DeviceGroup::Work DeviceGroup::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return carry_out(request(OpType::_ALLGATHER_BASE, BACKPLANE_TITLE("_all_gather_base"), input, options.timeout, {output}), {output},
                   [&](Calls& calls) { return calls.all_gather(output, input); });
}

DeviceGroup::Work DeviceGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && outputs.size() == static_cast<size_t>(getSize()),
                    "all_gather_coalesced takes inputs, and for each of ", getSize(), " ranks a list of outputs");
  Tensors results;
  for (const Tensors& of_rank : outputs) {
    TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "all_gather_coalesced: a list of outputs has ", of_rank.size(),
                      " tensors, there are ", inputs.size(), " inputs");
    results.insert(results.end(), of_rank.begin(), of_rank.end());
  }
  return carry_out(
      request(OpType::ALLGATHER_COALESCED, BACKPLANE_TITLE("all_gather_coalesced"), inputs[0], options.timeout, {inputs, results}), results,
      [&](Calls& calls) {
        for (size_t i = 0; i < inputs.size(); ++i) {
          Tensors of_all;
          for (const Tensors& of_rank : outputs) of_all.push_back(of_rank[i]);
          check_gathered(of_all, inputs[i], "all_gather_coalesced");
          if (!calls.all_gather(of_all, inputs[i])) return false;
        }
        return true;
      });
}

DeviceGroup::Work DeviceGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "all_gather_into_tensor_coalesced takes as many outputs as inputs");
  return carry_out(
      request(OpType::COALESCED, BACKPLANE_TITLE("all_gather_into_tensor_coalesced"), inputs[0], options.timeout, {inputs, outputs}),
      outputs, [&](Calls& calls) {
        for (size_t i = 0; i < inputs.size(); ++i) {
          if (!calls.all_gather(outputs[i], inputs[i])) return false;
        }
        return true;
      });
}

DeviceGroup::Work DeviceGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "gather");
  const int root = check_rank(options.rootRank, getSize(), "gather");
  const Tensors of_all = of_root(outputs, root, getRank(), getSize(), "gather", "outputs");
  for (const at::Tensor& output : of_all) {
    check_dtype(output, input, "gather");
    check_size(output.numel(), input.numel(), "gather", "an output");
  }
  return carry_out(request(OpType::GATHER, BACKPLANE_TITLE("gather"), input, options.timeout, {of_all}), of_all,
                   [&](Calls& calls) { return calls.gather(of_all, input, root); });
}

DeviceGroup::Work DeviceGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor& output = the_one(outputs, "scatter");
  const int root = check_rank(options.rootRank, getSize(), "scatter");
  const Tensors of_all = of_root(inputs, root, getRank(), getSize(), "scatter", "inputs");
  for (const at::Tensor& input : of_all) {
    check_dtype(output, input, "scatter");
    check_size(input.numel(), output.numel(), "scatter", "an input");
  }
  return carry_out(request(OpType::SCATTER, BACKPLANE_TITLE("scatter"), output, options.timeout, {of_all}), outputs,
                   [&](Calls& calls) { return calls.scatter(output, of_all, root); });
}

DeviceGroup::Work DeviceGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = the_one(outputs, "reduce_scatter");
  const Tensors& of_all = of_ranks(inputs, getSize(), "reduce_scatter");
  for (const at::Tensor& input : of_all) check_dtype(output, input, "reduce_scatter");
  check_size(output.numel(), of_all[static_cast<size_t>(getRank())].numel(), "reduce_scatter", "the output");
  return carry_out(request(OpType::REDUCE_SCATTER, BACKPLANE_TITLE("reduce_scatter"), output, options.timeout, {of_all}), outputs,
                   [&](Calls& calls) {
                     for (int root = 0; root < getSize(); ++root) {
                       if (!calls.reduce(of_all[static_cast<size_t>(root)], output, root, options.reduceOp)) return false;
                     }
                     return true;
                   });
}

DeviceGroup::Work DeviceGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return carry_out(request(OpType::_REDUCE_SCATTER_BASE, BACKPLANE_TITLE("_reduce_scatter_base"), output, options.timeout, {input}),
                   {output}, [&](Calls& calls) { return calls.reduce_scatter(output, input, options.reduceOp); });
}

DeviceGroup::Work DeviceGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                               const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "reduce_scatter_tensor_coalesced takes as many outputs as inputs");
  return carry_out(request(compat::kReduceScatterTensorCoalesced, BACKPLANE_TITLE("reduce_scatter_tensor_coalesced"), inputs[0],
                           options.timeout, {inputs, outputs}),
                   outputs, [&](Calls& calls) {
                     for (size_t i = 0; i < inputs.size(); ++i) {
                       if (!calls.reduce_scatter(outputs[i], inputs[i], options.reduceOp)) return false;
                     }
                     return true;
                   });
}

DeviceGroup::Work DeviceGroup::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                             std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  const Request asked = request(OpType::ALLTOALL_BASE, BACKPLANE_TITLE("all_to_all"), input, options.timeout, {output});
  check_dtype(output, input, "all_to_all");
  const auto sent = split_bytes(input, input_splits, getSize(), "input");
  const auto received = split_bytes(output, output_splits, getSize(), "output");
  // Sizes that are given may be even here and not elsewhere.
  const bool is_even = input_splits.empty() && output_splits.empty();
  return carry_out(asked, {output}, [&](Calls& calls) { return calls.all_to_all(output, input, received, sent, is_even); });
}

DeviceGroup::Work DeviceGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(inputs.size() == ranks && outputs.size() == ranks, "all_to_all takes ", ranks,
                    " inputs and outputs, one for each rank, not ", inputs.size(), " and ", outputs.size());
  for (size_t rank = 0; rank < ranks; ++rank) check_dtype(outputs[rank], inputs[rank], "all_to_all");
  return carry_out(request(OpType::ALLTOALL, BACKPLANE_TITLE("all_to_all"), inputs[0], options.timeout, {inputs, outputs}), outputs,
                   [&](Calls& calls) { return calls.all_to_all(outputs, inputs); });
}

DeviceGroup::Work DeviceGroup::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor& tensor = the_one(tensors, "send");
  check_rank(destination, getSize(), "send");
  return carry_out(request(OpType::SEND, BACKPLANE_TITLE("send"), tensor, c10d::kUnsetTimeout), tensors,
                   [&](Calls& calls) { return calls.send(tensor, destination, tag); });
}

DeviceGroup::Work DeviceGroup::recv(Tensors& tensors, int source, int tag) {
  const at::Tensor& tensor = the_one(tensors, "recv");
  check_rank(source, getSize(), "recv");
  return carry_out(request(OpType::RECV, BACKPLANE_TITLE("recv"), tensor, c10d::kUnsetTimeout), tensors,
                   [&](Calls& calls) { return calls.recv(tensor, source, tag); });
}

DeviceGroup::Work DeviceGroup::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = the_one(tensors, "recv");
  return carry_out(request(OpType::RECVANYSOURCE, BACKPLANE_TITLE("recvAnySource"), tensor, c10d::kUnsetTimeout), tensors,
                   [&](Calls& calls) { return calls.recv_from_any(tensor, tag); });
}

DeviceGroup::Work DeviceGroup::barrier(const c10d::BarrierOptions& options) {
  return carry_out({OpType::BARRIER, BACKPLANE_TITLE("barrier"), device_of(options), timeout_of(options.timeout), {}}, {},
                   [](Calls& calls) { return calls.barrier(); });
}

c10::intrusive_ptr<c10d::Backend> DeviceGroup::shrink(const std::vector<int64_t>&, int, const c10::intrusive_ptr<c10d::Backend::Options>&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, getBackendName(),
                              " cannot shrink a group: destroy it, and call init_process_group with the ranks that are left");
}

void DeviceGroup::monitoredBarrier(const c10d::BarrierOptions&, bool) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, getBackendName(),
      " has no monitored barrier; Gloo has: monitored_barrier(group=torch.distributed.new_group(backend=\"gloo\"))");
}

}  // namespace backplane::distributed
