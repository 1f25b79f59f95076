// distributed/process_group.cpp: checks the arguments of each collective, and makes its calls.
#include "distributed/process_group.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/recording.h"
#include "runtime/device.h"

namespace backplane::distributed {

using c10d::OpType;
using std::chrono::milliseconds;

ProcessGroup::ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
                           GlooFactory make_gloo, bool is_native)
    : Backend(rank, size),
      options_(std::move(options)),
      title_(c10::str("process group '", options_->group_name, "' (rank ", rank, " of ", size, ")")),
      make_gloo_(std::move(make_gloo)) {
  init();
  if (is_native) transports_.push_back(native_ = std::make_shared<NativeTransport>(store, title_, rank, size, options_));
  if (make_gloo_) {
    transports_.push_back(std::make_shared<StagedTransport>(title_, make_gloo_(store, rank, size, options_->timeout)));
  }
}

ProcessGroup::~ProcessGroup() { shutdown(); }

const std::string ProcessGroup::getBackendName() const { return BACKPLANE_DEVICE_NAME "ccl"; }
c10::intrusive_ptr<c10d::Backend::Options> ProcessGroup::getBackendOptions() { return options_; }

milliseconds ProcessGroup::timeout_of(milliseconds asked) const { return asked == c10d::kUnsetTimeout ? options_->timeout : asked; }

c10::Device ProcessGroup::own_device() {
  if (bound_device_id_) return *bound_device_id_;
  const auto joined = native_ != nullptr ? native_->device() : std::nullopt;
  return joined.value_or(c10::Device(kDevice, current_device()));
}

c10::Device ProcessGroup::barrier_device() {
  if (native_ == nullptr || native_->device() || bound_device_id_) return own_device();
  const auto place = static_cast<size_t>(getRank());
  const auto& ranks = options_->global_ranks_in_group;
  const uint64_t rank = place < ranks.size() ? ranks[place] : place;
  return {kDevice, static_cast<c10::DeviceIndex>(rank % static_cast<uint64_t>(std::max<int>(device_count(), 1)))};
}

c10::Device ProcessGroup::device_of(const c10d::BarrierOptions& options) {
  c10::Device device = barrier_device();
  if (!options.device_ids.empty()) device = {kDevice, static_cast<c10::DeviceIndex>(options.device_ids[0])};
  if (options.device && options.device->type() == kDevice && options.device->has_index()) device = *options.device;
  device = {kDevice, resolve_device(device.index())};
  check_bound(device, bound_device_id_, "barrier");
  return device;
}

Request ProcessGroup::request(OpType type, const char* title, const at::Tensor& tensor, milliseconds timeout,
                              std::initializer_list<at::TensorList> others) const {
  const char* name = name_in(title);
  check_device(tensor, name);
  check_bound(tensor.device(), bound_device_id_, name);
  check_on(tensor, tensor.device(), name);
  for (const at::TensorList tensors : others) {
    for (const at::Tensor& other : tensors) check_on(other, tensor.device(), name);
  }
  return {type, title, tensor.device(), timeout_of(timeout), tensor, coalesced_ != nullptr};
}

void ProcessGroup::check_gathered(const Tensors& outputs, const at::Tensor& input, const char* name) const {
  for (const at::Tensor& output : outputs) check_dtype(output, input, name);
  check_size(outputs[static_cast<size_t>(getRank())].numel(), input.numel(), name, "this rank's output");
}

void ProcessGroup::check_parts(const at::Tensor& whole, const at::Tensor& part, const char* name, const char* which) const {
  check_dtype(whole, part, name);
  check_size(whole.numel(), part.numel() * getSize(), name, which);
}

c10::intrusive_ptr<GroupWork> ProcessGroup::make_work(const Request& request) {
  const Tensors inputs = request.input.defined() ? Tensors{request.input} : Tensors{};
  return c10::make_intrusive<GroupWork>(getRank(), request.type, request.title, ++sequence_, request.device, inputs);
}

ProcessGroup::Work ProcessGroup::carry_out(const Request& request, const Tensors& results, Fill fill) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& transport : transports_) {
    const std::unique_ptr<Calls> calls = transport->calls(request);
    if (calls == nullptr || !fill(*calls)) continue;
    const auto work = coalesced_ != nullptr ? coalesced_ : make_work(request);
    for (const at::Tensor& result : results) work->add_result(result);
    const Recording recording(*this, *options_, request.type, sequence_, request.input, results);
    calls->submit(work);
    if (coalesced_ == nullptr) work->finish_part();
    return work;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, name_in(request.title), " of ", title_,
      ": the driver's links do not support this call, and staging needs Gloo, which this torch was built without. "
      "A message uses the links if it has no tag and the group has joined, by device_id or by an earlier collective");
}

void ProcessGroup::startCoalescing() {
  TORCH_CHECK(coalesced_ == nullptr, "a batch of collectives of this group is open already; batches cannot nest");
  const c10::Device device = own_device();
  coalesced_ = make_work({OpType::COALESCED, BACKPLANE_TITLE("coalesced"), device, options_->timeout, {}});
  if (native_ != nullptr) native_->begin_batch(device);
}

ProcessGroup::Work ProcessGroup::endCoalescing() {
  TORCH_CHECK(coalesced_ != nullptr, "no batch of collectives of this group is open");
  const auto work = std::exchange(coalesced_, {});
  if (native_ != nullptr) native_->end_batch(work);
  work->finish_part();
  return work;
}

ProcessGroup::Work ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "broadcast");
  const int root = check_rank(options.rootRank, getSize(), "broadcast");
  return carry_out(request(OpType::BROADCAST, BACKPLANE_TITLE("broadcast"), tensor, options.timeout), tensors,
                   [&](Calls& calls) { return calls.broadcast(tensor, tensor, root); });
}

ProcessGroup::Work ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "all_reduce");
  return carry_out(request(OpType::ALLREDUCE, BACKPLANE_TITLE("all_reduce"), tensor, options.timeout), tensors,
                   [&](Calls& calls) { return calls.all_reduce(tensor, options.reduceOp); });
}

ProcessGroup::Work ProcessGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced takes at least one tensor");
  return carry_out(request(OpType::ALLREDUCE_COALESCED, BACKPLANE_TITLE("all_reduce_coalesced"), tensors[0], options.timeout, {tensors}),
                   tensors, [&](Calls& calls) {
                     return std::all_of(tensors.begin(), tensors.end(),
                                        [&](const at::Tensor& tensor) { return calls.all_reduce(tensor, options.reduceOp); });
                   });
}

ProcessGroup::Work ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "reduce");
  const int root = check_rank(options.rootRank, getSize(), "reduce");
  return carry_out(request(OpType::REDUCE, BACKPLANE_TITLE("reduce"), tensor, options.timeout), tensors,
                   [&](Calls& calls) { return calls.reduce(tensor, tensor, root, options.reduceOp); });
}

ProcessGroup::Work ProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "all_gather");
  const Tensors& of_all = of_ranks(outputs, getSize(), "all_gather");
  check_gathered(of_all, input, "all_gather");
  return carry_out(request(OpType::ALLGATHER, BACKPLANE_TITLE("all_gather"), input, options.timeout, {of_all}), of_all,
                   [&](Calls& calls) { return calls.all_gather(of_all, input); });
}

ProcessGroup::Work ProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  check_parts(output, input, "_all_gather_base", "the output");
  return carry_out(request(OpType::_ALLGATHER_BASE, BACKPLANE_TITLE("_all_gather_base"), input, options.timeout, {output}), {output},
                   [&](Calls& calls) { return calls.all_gather(output, input); });
}

ProcessGroup::Work ProcessGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& options) {
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

ProcessGroup::Work ProcessGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "all_gather_into_tensor_coalesced takes as many outputs as inputs");
  for (size_t i = 0; i < inputs.size(); ++i) check_parts(outputs[i], inputs[i], "all_gather_into_tensor_coalesced", "the output");
  return carry_out(
      request(OpType::COALESCED, BACKPLANE_TITLE("all_gather_into_tensor_coalesced"), inputs[0], options.timeout, {inputs, outputs}),
      outputs, [&](Calls& calls) {
        for (size_t i = 0; i < inputs.size(); ++i) {
          if (!calls.all_gather(outputs[i], inputs[i])) return false;
        }
        return true;
      });
}

ProcessGroup::Work ProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
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

ProcessGroup::Work ProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
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

ProcessGroup::Work ProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
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

ProcessGroup::Work ProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  check_parts(input, output, "_reduce_scatter_base", "the input");
  return carry_out(request(OpType::_REDUCE_SCATTER_BASE, BACKPLANE_TITLE("_reduce_scatter_base"), output, options.timeout, {input}),
                   {output}, [&](Calls& calls) { return calls.reduce_scatter(output, input, options.reduceOp); });
}

ProcessGroup::Work ProcessGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "reduce_scatter_tensor_coalesced takes as many outputs as inputs");
  for (size_t i = 0; i < inputs.size(); ++i) check_parts(inputs[i], outputs[i], "reduce_scatter_tensor_coalesced", "the input");
  return carry_out(request(compat::kReduceScatterTensorCoalesced, BACKPLANE_TITLE("reduce_scatter_tensor_coalesced"), inputs[0],
                           options.timeout, {inputs, outputs}),
                   outputs, [&](Calls& calls) {
                     for (size_t i = 0; i < inputs.size(); ++i) {
                       if (!calls.reduce_scatter(outputs[i], inputs[i], options.reduceOp)) return false;
                     }
                     return true;
                   });
}

ProcessGroup::Work ProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                               std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  const Request asked = request(OpType::ALLTOALL_BASE, BACKPLANE_TITLE("all_to_all"), input, options.timeout, {output});
  check_dtype(output, input, "all_to_all");
  const auto sent = split_bytes(input, input_splits, getSize(), "input");
  const auto received = split_bytes(output, output_splits, getSize(), "output");
  // Given sizes may be even here and uneven on another rank.
  const bool is_even = input_splits.empty() && output_splits.empty();
  return carry_out(asked, {output}, [&](Calls& calls) { return calls.all_to_all(output, input, received, sent, is_even); });
}

ProcessGroup::Work ProcessGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(inputs.size() == ranks && outputs.size() == ranks, "all_to_all takes ", ranks,
                    " inputs and outputs, one for each rank, not ", inputs.size(), " and ", outputs.size());
  for (size_t rank = 0; rank < ranks; ++rank) check_dtype(outputs[rank], inputs[rank], "all_to_all");
  return carry_out(request(OpType::ALLTOALL, BACKPLANE_TITLE("all_to_all"), inputs[0], options.timeout, {inputs, outputs}), outputs,
                   [&](Calls& calls) { return calls.all_to_all(outputs, inputs); });
}

ProcessGroup::Work ProcessGroup::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor& tensor = the_one(tensors, "send");
  check_rank(destination, getSize(), "send");
  check_peer(destination, getRank(), coalesced_ != nullptr, "send");
  return carry_out(request(OpType::SEND, BACKPLANE_TITLE("send"), tensor, c10d::kUnsetTimeout), tensors,
                   [&](Calls& calls) { return calls.send(tensor, destination, tag); });
}

ProcessGroup::Work ProcessGroup::recv(Tensors& tensors, int source, int tag) {
  const at::Tensor& tensor = the_one(tensors, "recv");
  check_rank(source, getSize(), "recv");
  check_peer(source, getRank(), coalesced_ != nullptr, "recv");
  return carry_out(request(OpType::RECV, BACKPLANE_TITLE("recv"), tensor, c10d::kUnsetTimeout), tensors,
                   [&](Calls& calls) { return calls.recv(tensor, source, tag); });
}

ProcessGroup::Work ProcessGroup::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = the_one(tensors, "recv");
  TORCH_CHECK_NOT_IMPLEMENTED(native_ == nullptr || tag != 0,
                              "a receive from any rank is staged, and so must be the send: give both a tag other than 0, or name the rank");
  return carry_out(request(OpType::RECVANYSOURCE, BACKPLANE_TITLE("recvAnySource"), tensor, c10d::kUnsetTimeout), tensors,
                   [&](Calls& calls) { return calls.recv_from_any(tensor, tag); });
}

ProcessGroup::Work ProcessGroup::barrier(const c10d::BarrierOptions& options) {
  const c10::Device device = device_of(options);
  return carry_out({OpType::BARRIER, BACKPLANE_TITLE("barrier"), device, timeout_of(options.timeout), {}, coalesced_ != nullptr}, {},
                   [&](Calls& calls) { return calls.barrier(device); });
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  c10::intrusive_ptr<ProcessGroup> part;
  if (mine != ranks.end()) {
    auto own = c10::make_intrusive<GroupOptions>(options->timeout);
    own->group_name = options->group_name;
    for (const int rank : ranks) {
      const auto place = static_cast<size_t>(rank);
      own->global_ranks_in_group.push_back(place < options_->global_ranks_in_group.size() ? options_->global_ranks_in_group[place] : place);
    }
    // torch passes one store to the backends of all devices, in which Gloo groups of several backends would collide.
    const auto own_store = c10::make_intrusive<c10d::PrefixStore>("device", store);
    part = c10::make_intrusive<ProcessGroup>(own_store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()),
                                             std::move(own), make_gloo_, native_ != nullptr);
    part->setBoundDeviceId(getBoundDeviceId());
  }
  if (native_ != nullptr) native_->split(part ? ranks.front() : -1, part ? part->native_.get() : nullptr);
  return part;
}

void ProcessGroup::eagerConnectSingleDevice(at::Device device) {
  if (native_ != nullptr) native_->connect({kDevice, resolve_device(device.index())});
}

c10d::ErrorType ProcessGroup::getError() {
  const auto has_failed = [](const auto& transport) { return transport->failure() != nullptr; };
  return std::any_of(transports_.begin(), transports_.end(), has_failed) ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void ProcessGroup::abort() {
  for (const auto& transport : transports_) transport->abort("was aborted");
}

void ProcessGroup::shutdown() {
  for (const auto& transport : transports_) transport->shutdown();
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::shrink(const std::vector<int64_t>&, int,
                                                       const c10::intrusive_ptr<c10d::Backend::Options>&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, getBackendName(),
                              " cannot shrink a group: destroy it, and call init_process_group with the ranks that are left");
}

void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions&, bool) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, getBackendName(),
      " has no monitored barrier; Gloo has: monitored_barrier(group=torch.distributed.new_group(backend=\"gloo\"))");
}

}  // namespace backplane::distributed
