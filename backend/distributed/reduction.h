// distributed/reduction.h: reductions that Gloo lacks, by those that it has: AVG, factors, and dtypes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace backplane::distributed {

// Throws for what has no meaning: AVG of bools, MIN of complex numbers, the bits of floating point numbers.
void check_reduction(const c10d::ReduceOp& op, c10::ScalarType dtype);

// "SUM", of a ReduceOp::RedOpType; "none" of another number.
const char* name_of_reduction(int64_t op);

// What PREMUL_SUM makes of its input, on the current stream of the device; empty for any other reduction. Throws if it has no factor.
using Prepare = std::function<at::Tensor(const at::Tensor& input)>;
Prepare factor_of(const c10d::ReduceOp& op);

// Makes an average of a sum; integers round toward zero.
void divide(const at::Tensor& sum, int ranks);

// Of tensors on the host, flat and contiguous. bool adds up by "or" and multiplies by "and", as NCCL's; AVG of integers rounds toward
// zero. Integers wrap around.
class HostReduction {
 public:
  HostReduction(const c10d::ReduceOp& op, c10::ScalarType dtype, int ranks);

  const c10d::ReduceOp& op() const { return op_; }                      // what Gloo is asked for
  at::Tensor encode(const at::Tensor& input) const;                     // what it is given; may be the same memory
  void decode(const at::Tensor& reduced, const at::Tensor& out) const;  // its result, into `out`, which may be what encode got

 private:
  c10d::ReduceOp op_;
  c10::ScalarType dtype_, sent_;
  bool averages_, flips_sign_ = false;
  int ranks_;
};

}  // namespace backplane::distributed
