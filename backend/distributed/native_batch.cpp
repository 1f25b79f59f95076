// distributed/native_batch.cpp: see native_batch.h.
#include "distributed/native_batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "distributed/reduction.h"

namespace backplane::distributed {
namespace native_batch_impl {
namespace {

using Op = c10d::ReduceOp::RedOpType;

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

}  // namespace
}  // namespace native_batch_impl

using namespace native_batch_impl;

NativeReduction::NativeReduction(const c10d::ReduceOp& asked, const at::Tensor& tensor, const bp_collective_properties& properties)
    : dtype(dtype_of(tensor.scalar_type())), op(op_of(asked.op_)), divides(false) {
  check_reduction(asked, tensor.scalar_type());
  if (op == BP_REDUCE_AVG && (properties.reduces[op] & dtype) == 0) {
    op = BP_REDUCE_SUM;
    divides = true;
  }
  if ((properties.reduces[op] & dtype) == 0) dtype = 0;
}

at::Tensor NativeGroup::Batch::reads(const at::Tensor& tensor) {
  check_on(tensor, device, name);
  kept.push_back(tensor.resolve_conj().resolve_neg().contiguous());
  return kept.back();
}

at::Tensor NativeGroup::Batch::writes(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& finish) {
  check_on(tensor, device, name);
  const bool is_dense = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  const at::Tensor written = is_dense ? tensor : at::empty(tensor.sizes(), tensor.options());
  written.mutable_data_ptr();  // of a lazy clone: its own memory
  kept.push_back(written);
  if (finish) after.push_back([written, finish] { finish(written); });
  if (!is_dense) after.push_back([tensor, written] { tensor.copy_(written); });
  return written;
}

void NativeGroup::Batch::add(const Batch& other) {
  calls.insert(calls.end(), other.calls.begin(), other.calls.end());
  kept.insert(kept.end(), other.kept.begin(), other.kept.end());
  after.insert(after.end(), other.after.begin(), other.after.end());
  timeout = std::max(timeout, other.timeout);
  device = other.device;
}

}  // namespace backplane::distributed
