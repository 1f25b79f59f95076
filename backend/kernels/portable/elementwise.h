// kernels/portable/elementwise.h: computes an expression of the kernel dialect over the operands of an iterator, by a kernel that is
// compiled for their dtypes and strides.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/util/SmallVector.h>
#include <c10/util/complex.h>

#include <cstdint>

#include "modules/launch.h"

namespace backplane::portable {

constexpr int kMostOperands = 7;  // the output among them: x, y, z, w, v, u are the inputs
constexpr int kMostScalars = 6;

// What the second input becomes where half types are computed in f32 and it is a number on the host, or has no dimensions and a wider type:
// the nearest of the half type, or what it is.
enum class HostNumbers : uint8_t { rounded, exact };

struct Expression {
  const char* text;  // of x, y, ..., s0, s1, ... (pointwise.h)
  int scalars;
  HostNumbers numbers = HostNumbers::rounded;
  bool gives_bool = false;  // else a value of the common dtype
  bool gives_part = false;  // a real number, of complex ones
  bool is_special = false;  // it calls functions of dialect/special_compute.bpc
  bool is_exact = false;    // its value needs no rounding to the common dtype, as an input does not
};

struct Computation {
  const char* name;                                    // for messages
  c10::ScalarType common;                              // inputs are converted to it, and computed in compute_type() of it
  int variant = 0;                                     // 0 to 3: which expression of the operator
  bool bits = false;                                   // the operands' elements are taken as of `common`, a dtype of their size
  c10::SmallVector<uint64_t, kMostScalars> scalars{};  // word_of(), or integers
};

// Queues output = expression(inputs) on the current stream of the iterator's device. False: nothing was done, because there is no such
// kernel (now), the dialect lacks a dtype, or there are too many dimensions or operands. `slots`: the operator's.
bool compute(at::TensorIteratorBase& iter, const Computation& what, const Expression& expression, KernelSlots& slots);

// The same of inputs of one size, device and dtype, `what.common`, all contiguous, to a new tensor: what an iterator finds out of a call is
// known then, and takes a small operator a quarter of its time.
bool compute_dense(at::ArrayRef<const at::Tensor*> inputs, const Computation& what, const Expression& expression, KernelSlots& slots,
                   at::Tensor& result);

// A number as the kernel's struct has it, where `common`, a floating dtype, is computed; or a complex one.
uint64_t word_of(double value, c10::ScalarType common);
uint64_t word_of(c10::complex<double> value);
// The nearest number of a half type, or of a smaller one; others stay.
double rounded(double value, c10::ScalarType common);
// An integer as one of an integral dtype.
int64_t wrapped(int64_t value, c10::ScalarType common);

}  // namespace backplane::portable
