// distributed/reduction.cpp: reductions of the host in dtypes and operations that Gloo supports.
#include "distributed/reduction.h"

#include <ATen/ops/view_as_real.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <limits>

#include "memory/caching_allocator.h"
#include "runtime/stream.h"
#include "torch/distributed.h"

namespace backplane::distributed {
namespace reduction_impl {
namespace {

using Op = c10d::ReduceOp::RedOpType;

// The dtype that Gloo reduces in place of an unsupported one.
c10::ScalarType sent_as(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return at::kByte;
    case at::kShort:
    case c10::ScalarType::UInt16:
      return at::kInt;
    case c10::ScalarType::UInt32:
    case c10::ScalarType::UInt64:
      return at::kLong;
    case c10::ScalarType::ComplexFloat:
    case c10::ScalarType::ComplexDouble:
      return c10::toRealValueType(dtype);
    case c10::ScalarType::ComplexHalf:
      return at::kHalf;
    default:
      return c10::isFloat8Type(dtype) ? at::kFloat : dtype;
  }
}

bool is_bitwise(Op op) { return op == Op::BAND || op == Op::BOR || op == Op::BXOR; }
bool is_order(Op op) { return op == Op::MIN || op == Op::MAX; }

// For uint64 in the bits of int64: int64's division treats half of the values as negative, and torch does not divide uint64.
void divide_unsigned(const at::Tensor& bits, uint64_t by) {
  int64_t* const values = bits.mutable_data_ptr<int64_t>();
  std::transform(values, values + bits.numel(), values,
                 [by](int64_t value) { return static_cast<int64_t>(static_cast<uint64_t>(value) / by); });
}

}  // namespace
}  // namespace reduction_impl

const char* name_of_reduction(int64_t op) {
  static constexpr const char* names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op >= 0 && op < reduction_impl::Op::UNUSED ? names[op] : "none";
}

void check_reduction(const c10d::ReduceOp& asked, c10::ScalarType dtype) {
  using namespace reduction_impl;
  const Op op = asked.op_;
  const bool is_sum = op == Op::SUM || op == Op::AVG;
  const bool is_known = c10::isComplexType(dtype)    ? is_sum
                        : dtype == at::kBool         ? op != Op::AVG
                        : c10::isFloatingType(dtype) ? !is_bitwise(op)
                                                     : true;
  TORCH_CHECK_VALUE(op < Op::UNUSED && is_known, "ReduceOp.", name_of_reduction(op), " is not defined for tensors of ", dtype);
}

Prepare factor_of(const c10d::ReduceOp& op) {
  if (op != c10d::ReduceOp::PREMUL_SUM) return {};
  const auto* given = dynamic_cast<const compat::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(given != nullptr, "ReduceOp.PREMUL_SUM has no factor: make it by torch.distributed._make_nccl_premul_sum(factor)");
  return [number = given->double_factor, tensor = given->tensor_factor](const at::Tensor& input) {
    if (!tensor.defined()) return input.mul(number);
    const at::Tensor factor = tensor.to(input.options());
    caching_allocator().recordStream(factor.storage().data_ptr(), current_stream(input.device().index()));
    return input.mul(factor);
  };
}

void divide(const at::Tensor& sum, int ranks) {
  if (c10::isIntegralType(sum.scalar_type(), false)) {
    sum.div_(ranks, "trunc");
  } else {
    sum.div_(ranks);
  }
}

HostReduction::HostReduction(const c10d::ReduceOp& op, c10::ScalarType dtype, int ranks)
    : op_(op.op_ == c10d::ReduceOp::PREMUL_SUM ? c10d::ReduceOp::SUM : op.op_),
      dtype_(dtype),
      sent_(reduction_impl::sent_as(dtype)),
      averages_(op.op_ == c10d::ReduceOp::AVG),
      ranks_(ranks) {
  check_reduction(op, dtype);
  if (averages_) op_ = c10d::ReduceOp::SUM;
  if (dtype == at::kBool && op_ == c10d::ReduceOp::SUM) op_ = c10d::ReduceOp::MAX;
  if (dtype == at::kBool && op_ == c10d::ReduceOp::PRODUCT) op_ = c10d::ReduceOp::MIN;
  flips_sign_ = dtype == c10::ScalarType::UInt64 && reduction_impl::is_order(op_.op_);
}

at::Tensor HostReduction::encode(const at::Tensor& input) const {
  if (sent_ == dtype_) return input;
  if (c10::isComplexType(dtype_)) return at::view_as_real(input).view(-1);
  if (c10::elementSize(dtype_) == c10::elementSize(sent_)) {
    const at::Tensor same = input.view(sent_);
    return flips_sign_ ? same.bitwise_xor(std::numeric_limits<int64_t>::min()) : same;
  }
  return input.to(sent_);
}

void HostReduction::decode(const at::Tensor& reduced, const at::Tensor& out) const {
  if (averages_ && dtype_ == c10::ScalarType::UInt64) {
    reduction_impl::divide_unsigned(reduced, static_cast<uint64_t>(ranks_));
  } else if (averages_) {
    divide(reduced, ranks_);
  }
  if (flips_sign_) reduced.bitwise_xor_(std::numeric_limits<int64_t>::min());
  const at::Tensor result = c10::isComplexType(dtype_)                     ? at::view_as_real(out).view(-1)
                            : out.element_size() == reduced.element_size() ? out.view(reduced.scalar_type())
                                                                           : out;
  if (result.data_ptr() != reduced.data_ptr()) result.copy_(reduced);
}

}  // namespace backplane::distributed
