// kernels/portable/unit/elementwise.h: walks that compute an expression of the kernel dialect over the operands of an iterator.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/util/SmallVector.h>
#include <c10/util/complex.h>

#include <cstdint>

#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {

constexpr int kMostInputs = 6;  // x, y, z, w, v, u
constexpr int kMostScalars = 6;

// What the second input becomes where half types are computed in f32 and it is a number on the host, or has no dimensions and a wider type:
// the nearest of the half type, or what it is.
enum class HostNumbers : uint8_t { rounded, exact };

struct Expression {
  Literal text;  // of x, y, ..., s0, s1, ... (pointwise.h)
  int scalars;
  HostNumbers numbers = HostNumbers::rounded;
  bool gives_bool = false;  // else a value of the common dtype
  bool gives_part = false;  // a real number, of complex ones
  bool is_special = false;  // it calls functions of dialect/special_compute.bpc
  bool is_exact = false;    // its value needs no rounding to the common dtype, as an input does not
};

struct Computation {
  Literal name;                                        // for messages
  c10::ScalarType common;                              // inputs are converted to it, and computed in compute_type() of it
  bool bits = false;                                   // the operands' elements are taken as of `common`, a dtype of their size
  c10::SmallVector<uint64_t, kMostScalars> scalars{};  // word_of(), or integers
};

// Queues output = expression(inputs) on the current stream of the iterator's device. False: nothing was done, because there is no such
// kernel (now), the dialect lacks a dtype, or there are too many dimensions or operands.
bool compute(at::TensorIteratorBase& iter, const Computation& what, const Expression& expression);

// The same of inputs of one size, device and dtype, `what.common`, all contiguous, to a new tensor: what an iterator finds out of a call is
// known then, and takes a small operator a quarter of its time.
bool compute_dense(at::ArrayRef<const at::Tensor*> inputs, const Computation& what, const Expression& expression, at::Tensor& result);

// Queues out = text(inputs) of broadcast operands, each as a value of `common`'s compute type, and of numbers s0, s1, ...; false: nothing
// was done.
bool apply(Literal name, const at::Tensor& out, at::ArrayRef<at::Tensor> inputs, Literal text, std::initializer_list<double> numbers,
           c10::ScalarType common);
// The same to a new tensor of that dtype, with strides as the inputs'.
at::Tensor apply(Literal name, c10::ScalarType dtype, at::ArrayRef<at::Tensor> inputs, Literal text, std::initializer_list<double> numbers,
                 c10::ScalarType common);

// A number as the kernel's struct has it, where `common`, a floating dtype, is computed; or a complex one.
uint64_t word_of(double value, c10::ScalarType common);
uint64_t word_of(c10::complex<double> value);
// The nearest number of a half type, or of a smaller one; others stay.
double rounded(double value, c10::ScalarType common);
// An integer as one of an integral dtype.
int64_t wrapped(int64_t value, c10::ScalarType common);

}  // namespace backplane::portable
