// distributed/native_batch.cpp: see native_batch.h.
#include "distributed/native_batch.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <numeric>

#include "distributed/reduction.h"

namespace backplane::distributed {
namespace native_batch_impl {
namespace {

using Op = c10d::ReduceOp::RedOpType;

uint64_t address_of(const at::Tensor& tensor) { return reinterpret_cast<uint64_t>(tensor.const_data_ptr()); }
uint64_t bytes_of(const at::Tensor& tensor) { return tensor.nbytes(); }
uint64_t count_of(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.numel()); }

bool is_dense(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

// BP_DTYPE_*; 0: the driver interface has no such dtype.
uint64_t dtype_of(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
      return BP_DTYPE_INT8;
    case at::kByte:
      return BP_DTYPE_UINT8;
    case at::kShort:
      return BP_DTYPE_INT16;
    case at::kInt:
      return BP_DTYPE_INT32;
    case at::kLong:
      return BP_DTYPE_INT64;
    case at::kBool:
      return BP_DTYPE_BOOL;
    case at::kHalf:
      return BP_DTYPE_FLOAT16;
    case at::kBFloat16:
      return BP_DTYPE_BFLOAT16;
    case at::kFloat:
      return BP_DTYPE_FLOAT32;
    case at::kDouble:
      return BP_DTYPE_FLOAT64;
    case c10::ScalarType::ComplexFloat:
      return BP_DTYPE_COMPLEX64;
    case c10::ScalarType::ComplexDouble:
      return BP_DTYPE_COMPLEX128;
    case c10::ScalarType::Float8_e4m3fn:
      return BP_DTYPE_FLOAT8_E4M3;
    case c10::ScalarType::Float8_e5m2:
      return BP_DTYPE_FLOAT8_E5M2;
    default:
      return 0;
  }
}

int32_t op_of(Op op) {
  static_assert(int{Op::SUM} == BP_REDUCE_SUM && int{Op::AVG} == BP_REDUCE_AVG && int{Op::PRODUCT} == BP_REDUCE_PRODUCT &&
                int{Op::MIN} == BP_REDUCE_MIN && int{Op::MAX} == BP_REDUCE_MAX && int{Op::BAND} == BP_REDUCE_BAND &&
                int{Op::BOR} == BP_REDUCE_BOR && int{Op::BXOR} == BP_REDUCE_BXOR);
  return op == Op::PREMUL_SUM ? BP_REDUCE_SUM : int32_t{op};
}

// How the driver makes a reduction of such a tensor. Throws c10::ValueError for what has no meaning (check_reduction).
struct Reduction {
  Reduction(const c10d::ReduceOp& asked, const at::Tensor& tensor, const bp_collective_properties& properties)
      : dtype(dtype_of(tensor.scalar_type())), op(op_of(asked.op_)) {
    check_reduction(asked, tensor.scalar_type());
    if (op == BP_REDUCE_AVG && (properties.reduces[op] & dtype) == 0) {
      op = BP_REDUCE_SUM;
      divides = true;
    }
    if ((properties.reduces[op] & dtype) == 0) dtype = 0;
  }

  uint64_t dtype;        // BP_DTYPE_*; 0: it does not
  int32_t op;            // BP_REDUCE_*
  bool divides = false;  // by the number of ranks, behind it
};

// What goes to each rank, or comes from it, one behind the other.
struct Parts {
  explicit Parts(const std::vector<int64_t>& sizes) : bytes(sizes.begin(), sizes.end()), at(sizes.size()) {
    std::exclusive_scan(bytes.begin(), bytes.end(), at.begin(), uint64_t{0});
  }
  std::vector<uint64_t> bytes, at;
};

void divide(const at::Tensor& sum, int ranks) {
  if (c10::isIntegralType(sum.scalar_type(), false)) {
    sum.div_(ranks, "trunc");
  } else {
    sum.div_(ranks);
  }
}

}  // namespace
}  // namespace native_batch_impl

using namespace native_batch_impl;

void NativeGroup::Pending::add(const Pending& other) {
  calls.insert(calls.end(), other.calls.begin(), other.calls.end());
  kept.insert(kept.end(), other.kept.begin(), other.kept.end());
  after.insert(after.end(), other.after.begin(), other.after.end());
  timeout = std::max(timeout, other.timeout);
  device = other.device;
}

NativeGroup::Batch::Batch(const NativeEngine& engine, const Request& request, int rank, int size, bool is_batched)
    : pending{request.device, request.timeout, name_in(request.title)},
      engine_(engine),
      rank_(rank),
      size_(size),
      is_batched_(is_batched) {}

template <class Make>
at::Tensor NativeGroup::Batch::copied(Make make) {
  engine_.follow_caller();
  const c10::StreamGuard guard(engine_.stream());
  return make();
}

at::Tensor NativeGroup::Batch::reads(const at::Tensor& tensor, const Prepare& prepare) {
  pending.kept.push_back(tensor);
  if (!prepare && is_dense(tensor)) return tensor;
  pending.kept.push_back(copied([&] { return (prepare ? prepare(tensor) : tensor).resolve_conj().resolve_neg().contiguous(); }));
  return pending.kept.back();
}

at::Tensor NativeGroup::Batch::writes(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& finish) {
  check_written(tensor, pending.name);
  const bool is_direct = is_dense(tensor);
  const at::Tensor written = is_direct ? tensor : at::empty(tensor.sizes(), tensor.options());
  written.mutable_data_ptr();  // of a lazy clone: its own memory
  pending.kept.push_back(written);
  if (!is_direct) pending.kept.push_back(tensor);
  if (finish) pending.after.push_back([written, finish] { finish(written); });
  if (!is_direct) pending.after.push_back([tensor, written] { tensor.copy_(written); });
  return written;
}

template <class Call>
bool NativeGroup::Batch::reduces(const c10d::ReduceOp& op, const at::Tensor& from, const at::Tensor& to, Call call) {
  const Reduction reduction(op, from, engine_.properties());
  if (reduction.dtype == 0) return false;
  const at::Tensor in = reads(from, factor_of(op));
  uint64_t out = 0;
  if (to.defined() && reduction.divides) {
    out = address_of(writes(to, [ranks = size_](const at::Tensor& sum) { divide(sum, ranks); }));
  } else if (to.defined()) {
    out = address_of(writes(to));
  }
  call(out, address_of(in), reduction.dtype, reduction.op);
  return true;
}

bool NativeGroup::Batch::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  return reduces(op, tensor, tensor, [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
    call<&bp_collective::all_reduce>(out, in, count_of(tensor), dtype, op);
  });
}

bool NativeGroup::Batch::reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) {
  return reduces(op, from, rank_ == root ? to : at::Tensor(), [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
    call<&bp_collective::reduce>(out, in, count_of(from), dtype, op, int32_t{root});
  });
}

bool NativeGroup::Batch::reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) {
  check_size(input.numel(), output.numel() * size_, pending.name, "the input");
  check_dtype(output, input, pending.name);
  return reduces(op, input, output, [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
    call<&bp_collective::reduce_scatter>(out, in, count_of(output), dtype, op);
  });
}

bool NativeGroup::Batch::broadcast(const at::Tensor& tensor, int root) {
  const at::Tensor one = rank_ == root ? reads(tensor) : writes(tensor);
  call<&bp_collective::broadcast>(address_of(one), address_of(one), bytes_of(one), int32_t{root});
  return true;
}

bool NativeGroup::Batch::all_gather(const at::Tensor& output, const at::Tensor& input) {
  check_size(output.numel(), input.numel() * size_, pending.name, "the output");
  check_dtype(output, input, pending.name);
  const at::Tensor in = reads(input), out = writes(output);
  call<&bp_collective::all_gather>(address_of(out), address_of(in), bytes_of(in));
  return true;
}

bool NativeGroup::Batch::all_gather(const Tensors& outputs, const at::Tensor& input) {
  const at::Tensor in = reads(input);
  for (int32_t root = 0; root < size_; ++root) {
    const at::Tensor out = writes(outputs[static_cast<size_t>(root)]);
    call<&bp_collective::broadcast>(address_of(out), address_of(in), bytes_of(out), root);
  }
  return true;
}

void NativeGroup::Batch::sends(const at::Tensor& from, int32_t peer) {
  const at::Tensor in = reads(from);
  call<&bp_collective::send>(address_of(in), bytes_of(in), peer);
}

void NativeGroup::Batch::receives(const at::Tensor& to, int32_t peer) {
  const at::Tensor out = writes(to);
  call<&bp_collective::recv>(address_of(out), bytes_of(out), peer);
}

// The driver's calls take all parts in one range.
bool NativeGroup::Batch::gather(const Tensors& outputs, const at::Tensor& input, int root) {
  if (engine_.has(BP_COLLECTIVE_GATHER)) {
    const at::Tensor in = reads(input);
    at::Tensor all;
    for (const at::Tensor& output : outputs) {
      check_written(output, pending.name);
      pending.kept.push_back(output);
    }
    if (!outputs.empty()) {
      all = writes(at::empty({size_, in.numel()}, in.options()));
      pending.after.push_back([all, outputs] {
        for (size_t rank = 0; rank < outputs.size(); ++rank) {
          outputs[rank].copy_(all[static_cast<int64_t>(rank)].view(outputs[rank].sizes()));
        }
      });
    }
    call<&bp_collective::gather>(all.defined() ? address_of(all) : 0, address_of(in), bytes_of(in), int32_t{root});
    return true;
  }
  sends(input, root);
  for (size_t rank = 0; rank < outputs.size(); ++rank) receives(outputs[rank], static_cast<int32_t>(rank));
  return true;
}

bool NativeGroup::Batch::scatter(const at::Tensor& output, const Tensors& inputs, int root) {
  if (engine_.has(BP_COLLECTIVE_GATHER)) {
    const at::Tensor out = writes(output);
    at::Tensor all;
    if (!inputs.empty()) {
      pending.kept.insert(pending.kept.end(), inputs.begin(), inputs.end());
      all = reads(copied([&] {
        Tensors parts;
        for (const at::Tensor& input : inputs) parts.push_back(input.reshape(-1));
        return at::cat(parts);
      }));
    }
    call<&bp_collective::scatter>(address_of(out), all.defined() ? address_of(all) : 0, bytes_of(out), int32_t{root});
    return true;
  }
  for (size_t rank = 0; rank < inputs.size(); ++rank) sends(inputs[rank], static_cast<int32_t>(rank));
  receives(output, root);
  return true;
}

bool NativeGroup::Batch::all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent,
                                    bool is_even) {
  const at::Tensor in = reads(input), out = writes(output);
  if (is_even && engine_.has(BP_COLLECTIVE_ALL_TO_ALL)) {
    call<&bp_collective::all_to_all>(address_of(out), address_of(in), static_cast<uint64_t>(sent[0]));
    return true;
  }
  if (!is_even && engine_.has(BP_COLLECTIVE_ALL_TO_ALL_V)) {
    const Parts from(sent), to(received);
    pending.calls.push_back(
        [=, device = pending.device, to_address = address_of(out), from_address = address_of(in)](bp_comm* comm, bp_stream* stream) {
          const int32_t status = detail::invoke<&bp_collective::all_to_all_v>(
              open_driver(), comm, stream, to_address, to.bytes.data(), to.at.data(), from_address, from.bytes.data(), from.at.data());
          check_collective(status, detail::slot_name<&bp_collective::all_to_all_v>().c_str(), device);
        });
    return true;
  }
  uint64_t from = address_of(in), to = address_of(out);
  for (int32_t rank = 0; rank < size_; ++rank) {
    const auto out_bytes = static_cast<uint64_t>(sent[static_cast<size_t>(rank)]),
               in_bytes = static_cast<uint64_t>(received[static_cast<size_t>(rank)]);
    call<&bp_collective::send>(from, out_bytes, rank);
    call<&bp_collective::recv>(to, in_bytes, rank);
    from += out_bytes;
    to += in_bytes;
  }
  return true;
}

bool NativeGroup::Batch::all_to_all(const Tensors& outputs, const Tensors& inputs) {
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    sends(inputs[rank], static_cast<int32_t>(rank));
    receives(outputs[rank], static_cast<int32_t>(rank));
  }
  return true;
}

bool NativeGroup::Batch::send(const at::Tensor& tensor, int destination, int tag) {
  if (tag != 0) return false;
  check_peer(destination, rank_, is_batched_, pending.name);
  sends(tensor, destination);
  return true;
}

bool NativeGroup::Batch::recv(const at::Tensor& tensor, int source, int tag) {
  if (tag != 0) return false;
  check_peer(source, rank_, is_batched_, pending.name);
  receives(tensor, source);
  return true;
}

bool NativeGroup::Batch::recv_from_any(const at::Tensor&, int) { return false; }

bool NativeGroup::Batch::barrier() {
  if (engine_.has(BP_COLLECTIVE_BARRIER)) {
    call<&bp_collective::barrier>();
    return true;
  }
  return all_reduce(at::zeros({1}, at::TensorOptions().device(pending.device).dtype(at::kFloat)), c10d::ReduceOp::SUM);
}

}  // namespace backplane::distributed
