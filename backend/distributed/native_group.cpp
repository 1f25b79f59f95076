// distributed/native_group.cpp: which call of bp.collective each collective is.
#include "distributed/native_group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/native_batch.h"
#include "distributed/recording.h"
#include "distributed/reduction.h"
#include "memory/caching_allocator.h"
#include "runtime/driver.h"
#include "runtime/stream.h"
#include "torch/distributed.h"

namespace backplane::distributed {
namespace native_group_impl {
namespace {

using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

uint64_t address_of(const at::Tensor& tensor) { return reinterpret_cast<uint64_t>(tensor.const_data_ptr()); }
uint64_t bytes_of(const at::Tensor& tensor) { return tensor.nbytes(); }
uint64_t count_of(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.numel()); }

}  // namespace
}  // namespace native_group_impl

using namespace native_group_impl;

NativeGroup::NativeGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
                         GlooFactory make_gloo)
    : StagedGroup(store, rank, size, std::move(options), std::move(make_gloo)), store_(store) {}

NativeGroup::~NativeGroup() {
  for (const auto& engine : engines()) engine->shutdown();
}

CommunicatorSettings NativeGroup::settings() const { return {title_, getRank(), getSize(), options_->timeout}; }

c10::Device NativeGroup::own_device() {
  const auto there = engines();
  return bound_device_id_ || there.empty() ? StagedGroup::own_device() : there.front()->device();
}

std::vector<std::shared_ptr<NativeEngine>> NativeGroup::engines() {
  const std::lock_guard<std::mutex> lock(connecting_);
  return engines_;
}

std::shared_ptr<NativeEngine> NativeGroup::engine_if_there(c10::Device device) {
  for (const auto& engine : engines()) {
    if (engine->device() == device) return engine;
  }
  return nullptr;
}

std::shared_ptr<NativeEngine> NativeGroup::engine_on(c10::Device device) {
  if (auto engine = engine_if_there(device)) return engine;
  const std::lock_guard<std::mutex> lock(connecting_);
  const std::string key = c10::str("bp.collective/", engines_.size());  // the same on all ranks
  const auto exchange = [&](std::string id) {
    if (getRank() == 0) {
      store_->set(key, std::vector<uint8_t>(id.begin(), id.end()));
      return id;
    }
    store_->wait({key}, options_->timeout);
    const std::vector<uint8_t> bytes = store_->get(key);
    return std::string(bytes.begin(), bytes.end());
  };
  engines_.push_back(NativeEngine::connect(device, settings(), exchange));
  return engines_.back();
}

void NativeGroup::eagerConnectSingleDevice(at::Device device) { engine_on({kDevice, resolve_device(device.index())}); }

// `fill(batch, engine)` puts the calls in; false: the driver has no such, and NULL comes back.
template <class Fill>
StagedGroup::Work NativeGroup::queue(c10d::OpType type, const char* title, const at::Tensor& tensor, milliseconds timeout,
                                     const Tensors& results, Fill fill) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_device(tensor, name_in(title));
  const auto engine = engine_on(tensor.device());
  Batch batch(tensor.device(), timeout_of(timeout), name_in(title));
  if (!fill(batch, *engine)) return nullptr;
  batch.work =
      is_batched() ? batch_->work : c10::make_intrusive<NativeWork>(getRank(), type, title, ++sequence_, tensor.device(), Tensors{tensor});
  for (const at::Tensor& result : results) batch.work->add_result(result);
  const Recording recording(*this, *options_, type, sequence_, tensor, results);
  if (!is_batched()) return run(batch, *engine, nullptr);
  TORCH_CHECK_VALUE(batch_->calls.empty() || batch_->device == batch.device, batch.name, ": a tensor is on ", batch.device,
                    ", the calls before it in the batch are of ", batch_->device);
  batch_->add(batch);
  return batch_->work;
}

StagedGroup::Work NativeGroup::run(Batch& batch, NativeEngine& engine, c10::intrusive_ptr<c10d::Work> staged) {
  const uint32_t most = engine.properties().max_group;
  TORCH_CHECK_NOT_IMPLEMENTED(batch.calls.size() <= 1 || most == 0 || batch.calls.size() <= most, batch.name, " is ", batch.calls.size(),
                              " calls of the driver at once, which takes ", most, ": use smaller batches, or ", BACKPLANE_ENV_PREFIX,
                              "_DIST=staged");
  const auto call = engine.run(
      batch.name, batch.timeout, batch.calls.size() > 1,
      [&](bp_comm* comm, bp_stream* stream) {
        for (const auto& one : batch.calls) one(comm, stream);
      },
      [&] {
        for (const auto& one : batch.after) one();
      });
  for (const at::Tensor& tensor : batch.kept) {
    if (tensor.numel() > 0) caching_allocator().recordStream(tensor.storage().data_ptr(), engine.stream());
  }
  const c10::StreamGuard guard(engine.stream());  // which the future's callbacks find
  batch.work->queued(engine.shared_from_this(), call, std::move(staged));
  return batch.work;
}

// `call(batch, out, in, reduction)` for a reduction of `from` into `to`, which may be undefined. False: the driver has none such.
template <class Call>
bool NativeGroup::reduces(Batch& batch, const NativeEngine& engine, const c10d::ReduceOp& op, const at::Tensor& from, const at::Tensor& to,
                          Call call) {
  const NativeReduction reduction(op, from, engine.properties());
  if (reduction.dtype == 0) return false;
  const auto divide = [ranks = getSize()](const at::Tensor& sum) {
    if (c10::isIntegralType(sum.scalar_type(), false)) {
      sum.div_(ranks, "trunc");
    } else {
      sum.div_(ranks);
    }
  };
  const at::Tensor in = batch.reads(with_factor(from, op));
  uint64_t out = 0;
  if (to.defined()) out = address_of(reduction.divides ? batch.writes(to, divide) : batch.writes(to));
  call(out, address_of(in), reduction.dtype, reduction.op);
  return true;
}

StagedGroup::Work NativeGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "broadcast");
  const auto root = static_cast<int32_t>(options.rootRank);
  check_rank(root, getSize(), "broadcast");
  return queue(c10d::OpType::BROADCAST, BACKPLANE_TITLE("broadcast"), tensor, options.timeout, tensors, [&](Batch& batch, NativeEngine&) {
    const at::Tensor one = getRank() == root ? batch.reads(tensor) : batch.writes(tensor);
    batch.call<&bp_collective::broadcast>(address_of(one), address_of(one), bytes_of(one), root);
    return true;
  });
}

StagedGroup::Work NativeGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "all_reduce");
  const Work work = queue(c10d::OpType::ALLREDUCE, BACKPLANE_TITLE("all_reduce"), tensor, options.timeout, tensors,
                          [&](Batch& batch, NativeEngine& engine) { return all_reduce(batch, engine, tensor, options.reduceOp); });
  return work != nullptr ? work : StagedGroup::allreduce(tensors, options);
}

bool NativeGroup::all_reduce(Batch& batch, const NativeEngine& engine, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  return reduces(batch, engine, op, tensor, tensor, [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
    batch.call<&bp_collective::all_reduce>(out, in, count_of(tensor), dtype, op);
  });
}

StagedGroup::Work NativeGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced takes at least one tensor");
  const Work work = queue(c10d::OpType::ALLREDUCE_COALESCED, BACKPLANE_TITLE("all_reduce_coalesced"), tensors[0], options.timeout, tensors,
                          [&](Batch& batch, NativeEngine& engine) {
                            return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
                              return all_reduce(batch, engine, tensor, options.reduceOp);
                            });
                          });
  return work != nullptr ? work : StagedGroup::allreduce_coalesced(tensors, options);
}

StagedGroup::Work NativeGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "reduce");
  const auto root = static_cast<int32_t>(options.rootRank);
  check_rank(root, getSize(), "reduce");
  const Work work =
      queue(c10d::OpType::REDUCE, BACKPLANE_TITLE("reduce"), tensor, options.timeout, tensors, [&](Batch& batch, NativeEngine& engine) {
        const at::Tensor to = getRank() == root ? tensor : at::Tensor();
        return reduces(batch, engine, options.reduceOp, tensor, to, [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
          batch.call<&bp_collective::reduce>(out, in, count_of(tensor), dtype, op, root);
        });
      });
  return work != nullptr ? work : StagedGroup::reduce(tensors, options);
}

// Each rank's own, which may differ in size.
StagedGroup::Work NativeGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "all_gather");
  const Tensors& of_all = of_ranks(outputs, getSize(), "all_gather");
  return queue(c10d::OpType::ALLGATHER, BACKPLANE_TITLE("all_gather"), input, options.timeout, of_all, [&](Batch& batch, NativeEngine&) {
    check_size(of_all[static_cast<size_t>(getRank())].numel(), input.numel(), batch.name, "the output of the own rank");
    const at::Tensor in = batch.reads(input);
    for (int32_t root = 0; root < getSize(); ++root) {
      const at::Tensor& output = of_all[static_cast<size_t>(root)];
      check_dtype(output, input, batch.name);
      const at::Tensor out = batch.writes(output);
      batch.call<&bp_collective::broadcast>(address_of(out), address_of(in), bytes_of(out), root);
    }
    return true;
  });
}

void NativeGroup::all_gather(Batch& batch, const at::Tensor& output, const at::Tensor& input) {
  check_size(output.numel(), input.numel() * getSize(), batch.name, "the output");
  check_dtype(output, input, batch.name);
  const at::Tensor in = batch.reads(input), out = batch.writes(output);
  batch.call<&bp_collective::all_gather>(address_of(out), address_of(in), bytes_of(in));
}

StagedGroup::Work NativeGroup::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return queue(c10d::OpType::_ALLGATHER_BASE, BACKPLANE_TITLE("_all_gather_base"), input, options.timeout, {output},
               [&](Batch& batch, NativeEngine&) {
                 all_gather(batch, output, input);
                 return true;
               });
}

StagedGroup::Work NativeGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "all_gather_into_tensor_coalesced takes as many outputs as inputs");
  return queue(c10d::OpType::COALESCED, BACKPLANE_TITLE("all_gather_into_tensor_coalesced"), inputs[0], options.timeout, outputs,
               [&](Batch& batch, NativeEngine&) {
                 for (size_t i = 0; i < inputs.size(); ++i) all_gather(batch, outputs[i], inputs[i]);
                 return true;
               });
}

StagedGroup::Work NativeGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "gather");
  const auto root = static_cast<int32_t>(options.rootRank);
  check_rank(root, getSize(), "gather");
  const bool is_root = getRank() == root;
  TORCH_CHECK_VALUE(is_root || outputs.empty(), "gather: only rank ", root, ", the root, has outputs");
  const Tensors none, &of_all = is_root ? of_ranks(outputs, getSize(), "gather") : none;
  return queue(c10d::OpType::GATHER, BACKPLANE_TITLE("gather"), input, options.timeout, of_all, [&](Batch& batch, NativeEngine&) {
    const at::Tensor in = batch.reads(input);
    batch.call<&bp_collective::send>(address_of(in), bytes_of(in), root);
    for (size_t rank = 0; rank < of_all.size(); ++rank) {
      check_dtype(of_all[rank], input, batch.name);
      const at::Tensor out = batch.writes(of_all[rank]);
      batch.call<&bp_collective::recv>(address_of(out), bytes_of(out), static_cast<int32_t>(rank));
    }
    return true;
  });
}

StagedGroup::Work NativeGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor& output = the_one(outputs, "scatter");
  const auto root = static_cast<int32_t>(options.rootRank);
  check_rank(root, getSize(), "scatter");
  const bool is_root = getRank() == root;
  TORCH_CHECK_VALUE(is_root || inputs.empty(), "scatter: only rank ", root, ", the root, has inputs");
  const Tensors none, &of_all = is_root ? of_ranks(inputs, getSize(), "scatter") : none;
  return queue(c10d::OpType::SCATTER, BACKPLANE_TITLE("scatter"), output, options.timeout, outputs, [&](Batch& batch, NativeEngine&) {
    for (size_t rank = 0; rank < of_all.size(); ++rank) {
      check_dtype(output, of_all[rank], batch.name);
      const at::Tensor in = batch.reads(of_all[rank]);
      batch.call<&bp_collective::send>(address_of(in), bytes_of(in), static_cast<int32_t>(rank));
    }
    const at::Tensor out = batch.writes(output);
    batch.call<&bp_collective::recv>(address_of(out), bytes_of(out), root);
    return true;
  });
}

StagedGroup::Work NativeGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = the_one(outputs, "reduce_scatter");
  const Tensors& of_all = of_ranks(inputs, getSize(), "reduce_scatter");
  const Work work = queue(c10d::OpType::REDUCE_SCATTER, BACKPLANE_TITLE("reduce_scatter"), output, options.timeout, outputs,
                          [&](Batch& batch, NativeEngine& engine) {
                            for (int32_t root = 0; root < getSize(); ++root) {
                              const at::Tensor& input = of_all[static_cast<size_t>(root)];
                              check_dtype(output, input, batch.name);
                              const auto call = [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
                                batch.call<&bp_collective::reduce>(out, in, count_of(input), dtype, op, root);
                              };
                              if (!reduces(batch, engine, options.reduceOp, input, root == getRank() ? output : at::Tensor(), call))
                                return false;
                            }
                            return true;
                          });
  return work != nullptr ? work : StagedGroup::reduce_scatter(outputs, inputs, options);
}

bool NativeGroup::reduce_scatter(Batch& batch, const NativeEngine& engine, const at::Tensor& output, const at::Tensor& input,
                                 const c10d::ReduceOp& op) {
  check_size(input.numel(), output.numel() * getSize(), batch.name, "the input");
  check_dtype(output, input, batch.name);
  return reduces(batch, engine, op, input, output, [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
    batch.call<&bp_collective::reduce_scatter>(out, in, count_of(output), dtype, op);
  });
}

StagedGroup::Work NativeGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  const Work work =
      queue(c10d::OpType::_REDUCE_SCATTER_BASE, BACKPLANE_TITLE("_reduce_scatter_base"), output, options.timeout, {output},
            [&](Batch& batch, NativeEngine& engine) { return reduce_scatter(batch, engine, output, input, options.reduceOp); });
  return work != nullptr ? work : StagedGroup::_reduce_scatter_base(output, input, options);
}

StagedGroup::Work NativeGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                               const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "reduce_scatter_tensor_coalesced takes as many outputs as inputs");
  const Work work = queue(compat::kReduceScatterTensorCoalesced, BACKPLANE_TITLE("reduce_scatter_tensor_coalesced"), inputs[0],
                          options.timeout, outputs, [&](Batch& batch, NativeEngine& engine) {
                            for (size_t i = 0; i < inputs.size(); ++i) {
                              if (!reduce_scatter(batch, engine, outputs[i], inputs[i], options.reduceOp)) return false;
                            }
                            return true;
                          });
  return work != nullptr ? work : StagedGroup::reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

StagedGroup::Work NativeGroup::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                             std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return queue(c10d::OpType::ALLTOALL_BASE, BACKPLANE_TITLE("all_to_all"), input, options.timeout, {output},
               [&](Batch& batch, NativeEngine& engine) {
                 check_dtype(output, input, batch.name);
                 const auto sent = split_bytes(input, input_splits, getSize(), "input"),
                            received = split_bytes(output, output_splits, getSize(), "output");
                 const at::Tensor in = batch.reads(input), out = batch.writes(output);
                 const auto is_even = [](const std::vector<int64_t>& sizes) {
                   return std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == sizes[0]; });
                 };
                 // Split sizes may be even here and not elsewhere: only what a rank knows of all others decides.
                 if (engine.has(BP_COLLECTIVE_ALL_TO_ALL) && input_splits.empty() && output_splits.empty() && is_even(sent)) {
                   batch.call<&bp_collective::all_to_all>(address_of(out), address_of(in), static_cast<uint64_t>(sent[0]));
                   return true;
                 }
                 uint64_t from = address_of(in), to = address_of(out);
                 for (int32_t rank = 0; rank < getSize(); ++rank) {
                   const auto out_bytes = static_cast<uint64_t>(sent[static_cast<size_t>(rank)]),
                              in_bytes = static_cast<uint64_t>(received[static_cast<size_t>(rank)]);
                   batch.call<&bp_collective::send>(from, out_bytes, rank);
                   batch.call<&bp_collective::recv>(to, in_bytes, rank);
                   from += out_bytes;
                   to += in_bytes;
                 }
                 return true;
               });
}

StagedGroup::Work NativeGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(inputs.size() == ranks && outputs.size() == ranks, "all_to_all takes ", ranks,
                    " inputs and outputs, one for each rank, not ", inputs.size(), " and ", outputs.size());
  return queue(c10d::OpType::ALLTOALL, BACKPLANE_TITLE("all_to_all"), inputs[0], options.timeout, outputs,
               [&](Batch& batch, NativeEngine&) {
                 for (size_t rank = 0; rank < ranks; ++rank) {
                   check_dtype(outputs[rank], inputs[rank], batch.name);
                   const at::Tensor in = batch.reads(inputs[rank]), out = batch.writes(outputs[rank]);
                   batch.call<&bp_collective::send>(address_of(in), bytes_of(in), static_cast<int32_t>(rank));
                   batch.call<&bp_collective::recv>(address_of(out), bytes_of(out), static_cast<int32_t>(rank));
                 }
                 return true;
               });
}

// To itself a rank sends in a batch alone, which has both ends.
void NativeGroup::check_message(int peer, const char* name) const {
  check_rank(peer, getSize(), name);
  TORCH_CHECK_VALUE(
      peer != getRank() || is_batched(), name, ": rank ", peer,
      " is the caller itself, whose send and recv must be in one call of torch.distributed.batch_isend_irecv; or copy the tensor");
}

// Messages with a tag go through the host, which matches them.
StagedGroup::Work NativeGroup::send(Tensors& tensors, int destination, int tag) {
  if (tag != 0 || engine_if_there(the_one(tensors, "send").device()) == nullptr) return StagedGroup::send(tensors, destination, tag);
  const at::Tensor& tensor = the_one(tensors, "send");
  check_message(destination, "send");
  return queue(c10d::OpType::SEND, BACKPLANE_TITLE("send"), tensor, c10d::kUnsetTimeout, tensors, [&](Batch& batch, NativeEngine&) {
    const at::Tensor in = batch.reads(tensor);
    batch.call<&bp_collective::send>(address_of(in), bytes_of(in), destination);
    return true;
  });
}

StagedGroup::Work NativeGroup::recv(Tensors& tensors, int source, int tag) {
  if (tag != 0 || engine_if_there(the_one(tensors, "recv").device()) == nullptr) return StagedGroup::recv(tensors, source, tag);
  const at::Tensor& tensor = the_one(tensors, "recv");
  check_message(source, "recv");
  return queue(c10d::OpType::RECV, BACKPLANE_TITLE("recv"), tensor, c10d::kUnsetTimeout, tensors, [&](Batch& batch, NativeEngine&) {
    const at::Tensor out = batch.writes(tensor);
    batch.call<&bp_collective::recv>(address_of(out), bytes_of(out), source);
    return true;
  });
}

StagedGroup::Work NativeGroup::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK_NOT_IMPLEMENTED(tag != 0,
                              "a receive from any rank goes through the host, where it needs the sender's message: give both a tag that is "
                              "not 0, or name the rank");
  return StagedGroup::recvAnysource(tensors, tag);
}

StagedGroup::Work NativeGroup::barrier(const c10d::BarrierOptions& options) {
  const c10::Device device = device_of(options);
  const at::Tensor one = at::zeros({1}, at::TensorOptions().device(device).dtype(at::kFloat));
  return queue(c10d::OpType::BARRIER, BACKPLANE_TITLE("barrier"), one, options.timeout, {}, [&](Batch& batch, NativeEngine& engine) {
    if (engine.has(BP_COLLECTIVE_BARRIER)) {
      batch.call<&bp_collective::barrier>();
    } else {
      const at::Tensor in = batch.reads(one);
      batch.call<&bp_collective::all_reduce>(address_of(in), address_of(in), uint64_t{1}, uint64_t{BP_DTYPE_FLOAT32},
                                             int32_t{BP_REDUCE_SUM});
    }
    return true;
  });
}

void NativeGroup::startCoalescing() {
  StagedGroup::startCoalescing();
  const c10::Device device = own_device();
  batch_ = std::make_unique<Batch>(device, options_->timeout, "a batch of calls");
  batch_->work =
      c10::make_intrusive<NativeWork>(getRank(), c10d::OpType::COALESCED, BACKPLANE_TITLE("coalesced"), ++sequence_, device, Tensors{});
}

StagedGroup::Work NativeGroup::endCoalescing() {
  Work staged = StagedGroup::endCoalescing();
  const std::unique_ptr<Batch> batch = std::exchange(batch_, nullptr);
  if (batch->calls.empty()) return staged;
  return run(*batch, *engine_if_there(batch->device), std::move(staged));
}

c10::intrusive_ptr<c10d::Backend> NativeGroup::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  auto part = StagedGroup::split(store, ranks, options);
  for (const auto& engine : engines()) {
    if (!engine->has(BP_COLLECTIVE_SPLIT)) return part;
    if (part == nullptr) {
      engine->split(-1, settings());
    } else {
      auto& own = static_cast<NativeGroup&>(*part);
      own.engines_.push_back(engine->split(ranks.front(), own.settings()));
    }
  }
  return part;
}

c10::intrusive_ptr<c10d::Backend> NativeGroup::make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                         c10::intrusive_ptr<GroupOptions> options) {
  return c10::make_intrusive<NativeGroup>(store, rank, size, std::move(options), make_gloo_);
}

c10d::ErrorType NativeGroup::getError() {
  for (const auto& engine : engines()) {
    if (engine->failure() != nullptr) return c10d::ErrorType::COMM_ERROR;
  }
  return StagedGroup::getError();
}

void NativeGroup::abort() {
  for (const auto& engine : engines()) engine->abort("was aborted");
  StagedGroup::abort();
}

void NativeGroup::shutdown() {
  for (const auto& engine : engines()) engine->shutdown();
  StagedGroup::shutdown();
}

}  // namespace backplane::distributed
