// kernels/portable/reduction/reduce.h: folds elements along dimensions with reduction.bpc, compiled for their dtypes and strides.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <initializer_list>

#include "kernels/portable/unit/text.h"

namespace backplane::portable {

// A fold of reduction.bpc.
struct Fold {
  Literal name;             // OP_<name>
  int states = 1;           // the values that it carries
  bool is_ordered = false;  // it returns places: elements are numbered in the order of the dimensions
};

using DimMask = std::bitset<64>;

struct FoldCall {
  const at::Tensor& self;
  DimMask reduced;
  c10::ScalarType dtype;   // the elements are converted to it first
  bool is_summed = false;  // integers are folded in 64 bits
  std::array<double, 2> numbers{};
  // For a fold of two operands: the second, with the first one's strides, and arrays of the compute type.
  at::Tensor pair{}, m{}, q{};
};

// The size of the result.
at::DimVector reduced_size(at::IntArrayRef size, DimMask reduced, bool keepdim);

// Queues it. `outputs`: one or two dense tensors with as many elements as the result. False: nothing was done, because the kernel is not
// available (yet).
bool fold(const Fold& what, const FoldCall& call, std::initializer_list<at::Tensor> outputs);

}  // namespace backplane::portable
