// distributed/native_calls.cpp: collectives as calls of bp.collective.
#include "distributed/native_calls.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <numeric>

#include "distributed/native_transport.h"
#include "runtime/dtypes.h"

namespace backplane::distributed {
namespace native_calls_impl {
namespace {

using Op = c10d::ReduceOp::RedOpType;

uint64_t address_of(const at::Tensor& tensor) { return reinterpret_cast<uint64_t>(tensor.const_data_ptr()); }
uint64_t bytes_of(const at::Tensor& tensor) { return tensor.nbytes(); }
uint64_t count_of(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.numel()); }

bool is_dense(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

// BP_DTYPE_*; 0 if the driver interface does not have it.
uint64_t dtype_of(c10::ScalarType dtype) {
  const auto found = std::find_if(std::begin(kDriverDtypes), std::end(kDriverDtypes), [&](const auto& one) { return one.second == dtype; });
  return found == std::end(kDriverDtypes) ? 0 : found->first;
}

int32_t op_of(Op op) {
  static_assert(int{Op::SUM} == BP_REDUCE_SUM && int{Op::AVG} == BP_REDUCE_AVG && int{Op::PRODUCT} == BP_REDUCE_PRODUCT &&
                int{Op::MIN} == BP_REDUCE_MIN && int{Op::MAX} == BP_REDUCE_MAX && int{Op::BAND} == BP_REDUCE_BAND &&
                int{Op::BOR} == BP_REDUCE_BOR && int{Op::BXOR} == BP_REDUCE_BXOR);
  return op == Op::PREMUL_SUM ? BP_REDUCE_SUM : int32_t{op};
}

// How the driver computes a reduction of a tensor. Throws c10::ValueError for an undefined one (check_reduction).
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

  uint64_t dtype;        // BP_DTYPE_*; 0: not supported
  int32_t op;            // BP_REDUCE_*
  bool divides = false;  // afterwards, by the number of ranks
};

// The parts for each rank, or from each rank, one after the other.
struct Parts {
  explicit Parts(const std::vector<int64_t>& sizes) : bytes(sizes.begin(), sizes.end()), at(sizes.size()) {
    std::exclusive_scan(bytes.begin(), bytes.end(), at.begin(), uint64_t{0});
  }
  std::vector<uint64_t> bytes, at;
};

}  // namespace
}  // namespace native_calls_impl

using namespace native_calls_impl;

NativeCalls::NativeCalls(NativeTransport& transport, std::shared_ptr<Communicator> communicator, const Request& request)
    : transport_(transport),
      communicator_(std::move(communicator)),
      rank_(transport.rank()),
      size_(transport.size()),
      submission_{request.device, request.timeout, name_in(request.title)} {}

void NativeCalls::submit(const c10::intrusive_ptr<GroupWork>& work) { transport_.submit(communicator_, submission_, work); }

template <class Make>
at::Tensor NativeCalls::copied(Make make) {
  communicator_->follow_caller();
  const c10::StreamGuard guard(communicator_->stream());
  return make();
}

at::Tensor NativeCalls::reads(const at::Tensor& tensor, const Prepare& prepare) {
  submission_.kept.push_back(tensor);
  if (!prepare && is_dense(tensor)) return tensor;
  submission_.kept.push_back(copied([&] { return (prepare ? prepare(tensor) : tensor).resolve_conj().resolve_neg().contiguous(); }));
  return submission_.kept.back();
}

at::Tensor NativeCalls::writes(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& finish) {
  check_written(tensor, submission_.name);
  const bool is_direct = is_dense(tensor);
  const at::Tensor written = is_direct ? tensor : at::empty(tensor.sizes(), tensor.options());
  written.mutable_data_ptr();  // a lazy clone gets its own memory
  submission_.kept.push_back(written);
  if (!is_direct) submission_.kept.push_back(tensor);
  if (finish) submission_.after.push_back([written, finish] { finish(written); });
  if (!is_direct) submission_.after.push_back([tensor, written] { tensor.copy_(written); });
  return written;
}

template <class Call>
bool NativeCalls::reduces(const c10d::ReduceOp& op, const at::Tensor& from, const at::Tensor& to, Call call) {
  const Reduction reduction(op, from, communicator_->properties());
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

bool NativeCalls::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  return reduces(op, tensor, tensor, [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
    call<&bp_collective::all_reduce>(out, in, count_of(tensor), dtype, op);
  });
}

bool NativeCalls::reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) {
  return reduces(op, from, rank_ == root ? to : at::Tensor(), [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
    call<&bp_collective::reduce>(out, in, count_of(from), dtype, op, int32_t{root});
  });
}

bool NativeCalls::reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) {
  return reduces(op, input, output, [&](uint64_t out, uint64_t in, uint64_t dtype, int32_t op) {
    call<&bp_collective::reduce_scatter>(out, in, count_of(output), dtype, op);
  });
}

bool NativeCalls::broadcast(const at::Tensor& from, const at::Tensor& to, int root) {
  const at::Tensor in = rank_ == root ? reads(from) : at::Tensor();
  const at::Tensor out = in.defined() && from.is_same(to) ? in : writes(to);
  call<&bp_collective::broadcast>(address_of(out), in.defined() ? address_of(in) : 0, bytes_of(out), int32_t{root});
  return true;
}

bool NativeCalls::all_gather(const at::Tensor& output, const at::Tensor& input) {
  const at::Tensor in = reads(input), out = writes(output);
  call<&bp_collective::all_gather>(address_of(out), address_of(in), bytes_of(in));
  return true;
}

bool NativeCalls::send(const at::Tensor& tensor, int destination, int tag) {
  if (tag != 0) return false;
  const at::Tensor in = reads(tensor);
  call<&bp_collective::send>(address_of(in), bytes_of(in), int32_t{destination});
  return true;
}

bool NativeCalls::recv(const at::Tensor& tensor, int source, int tag) {
  if (tag != 0) return false;
  const at::Tensor out = writes(tensor);
  call<&bp_collective::recv>(address_of(out), bytes_of(out), int32_t{source});
  return true;
}

// The driver's calls require all parts in one buffer.
bool NativeCalls::gather(const Tensors& outputs, const at::Tensor& input, int root) {
  if (!communicator_->has(BP_COLLECTIVE_GATHER)) return Calls::gather(outputs, input, root);
  const at::Tensor in = reads(input);
  at::Tensor all;
  for (const at::Tensor& output : outputs) {
    check_written(output, submission_.name);
    submission_.kept.push_back(output);
  }
  if (!outputs.empty()) {
    all = writes(at::empty({size_, in.numel()}, in.options()));
    submission_.after.push_back([all, outputs] {
      for (size_t rank = 0; rank < outputs.size(); ++rank) {
        outputs[rank].copy_(all[static_cast<int64_t>(rank)].view(outputs[rank].sizes()));
      }
    });
  }
  call<&bp_collective::gather>(all.defined() ? address_of(all) : 0, address_of(in), bytes_of(in), int32_t{root});
  return true;
}

bool NativeCalls::scatter(const at::Tensor& output, const Tensors& inputs, int root) {
  if (!communicator_->has(BP_COLLECTIVE_GATHER)) return Calls::scatter(output, inputs, root);
  const at::Tensor out = writes(output);
  at::Tensor all;
  if (!inputs.empty()) {
    submission_.kept.insert(submission_.kept.end(), inputs.begin(), inputs.end());
    all = reads(copied([&] {
      Tensors parts;
      for (const at::Tensor& input : inputs) parts.push_back(input.reshape(-1));
      return at::cat(parts);
    }));
  }
  call<&bp_collective::scatter>(address_of(out), all.defined() ? address_of(all) : 0, bytes_of(out), int32_t{root});
  return true;
}

bool NativeCalls::all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent, bool is_even) {
  const at::Tensor in = reads(input), out = writes(output);
  if (is_even && communicator_->has(BP_COLLECTIVE_ALL_TO_ALL)) {
    call<&bp_collective::all_to_all>(address_of(out), address_of(in), static_cast<uint64_t>(sent[0]));
    return true;
  }
  if (!is_even && communicator_->has(BP_COLLECTIVE_ALL_TO_ALL_V)) {
    const Parts from(sent), to(received);
    submission_.calls.push_back(
        [=, device = submission_.device, to_address = address_of(out), from_address = address_of(in)](bp_comm* comm, bp_stream* stream) {
          const int32_t status = detail::invoke<&bp_collective::all_to_all_v>(
              open_driver(), comm, stream, to_address, to.bytes.data(), to.at.data(), from_address, from.bytes.data(), from.at.data());
          check_collective(status, detail::slot_name<&bp_collective::all_to_all_v>().c_str(), device);
        });
    return true;
  }
  uint64_t from = address_of(in), to = address_of(out);  // composed here: views of all parts would cost the host more
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

bool NativeCalls::barrier(c10::Device device) {
  if (!communicator_->has(BP_COLLECTIVE_BARRIER)) return Calls::barrier(device);
  call<&bp_collective::barrier>();
  return true;
}

}  // namespace backplane::distributed
