// distributed/reduction.h: reductions that Gloo does not support, by those that it supports: AVG, factors, and dtypes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace backplane::distributed {

// Throws for an undefined reduction: AVG of bools, MIN of complex numbers, bitwise operations of floating point numbers.
void check_reduction(const c10d::ReduceOp& op, c10::ScalarType dtype);

// "SUM", for a ReduceOp::RedOpType; "none" for another number.
const char* name_of_reduction(int64_t op);

// The input of PREMUL_SUM multiplied by its factor, on the current stream of the device; empty for other reductions. Throws if there is no
// factor.
using Prepare = std::function<at::Tensor(const at::Tensor& input)>;
Prepare factor_of(const c10d::ReduceOp& op);

// Makes an average of a sum; integers round toward zero.
void divide(const at::Tensor& sum, int ranks);

// For tensors on the host, flat and contiguous. The sum of bools is "or" and their product "and", as in NCCL. Integers wrap around.
class HostReduction {
 public:
  HostReduction(const c10d::ReduceOp& op, c10::ScalarType dtype, int ranks);

  const c10d::ReduceOp& op() const { return op_; }                      // Gloo's operation
  at::Tensor encode(const at::Tensor& input) const;                     // Gloo's input; may be the same memory
  void decode(const at::Tensor& reduced, const at::Tensor& out) const;  // writes Gloo's result into `out`, which may be encode()'s input

 private:
  c10d::ReduceOp op_;
  c10::ScalarType dtype_, sent_;
  bool averages_, flips_sign_ = false;
  int ranks_;
};

}  // namespace backplane::distributed
