// kernels/portable/unit/elementwise.h: computes an expression of the kernel dialect over the operands of an iterator.
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

// How half types, which are computed in f32, treat a second input that is a number on the host or a 0-dim tensor of a wider type: rounded
// to the half type, or exact.
enum class HostNumbers : uint8_t { rounded, exact };

struct Expression {
  Literal text;  // of x, y, ..., s0, s1, ... (pointwise.h)
  int scalars;
  HostNumbers numbers = HostNumbers::rounded;
  bool gives_bool = false;  // otherwise the common dtype
  bool gives_part = false;  // a real number, of complex ones
  bool is_special = false;  // it calls functions of dialect/special_compute.bpc
  bool is_exact = false;    // its value is one of the inputs', so that it needs no rounding to the common dtype
};

struct Computation {
  Literal name;                                        // for messages
  c10::ScalarType common;                              // inputs are converted to it and computed in its compute_type()
  bool bits = false;                                   // the operands' elements are reinterpreted as `common`, of the same size
  c10::SmallVector<uint64_t, kMostScalars> scalars{};  // word_of(), or integers
};

// Queues output = expression(inputs) on the current stream of the iterator's device. False: nothing was done, because the kernel is not
// available (yet), the dialect does not support a dtype, or there are too many dimensions or operands.
bool compute(at::TensorIteratorBase& iter, const Computation& what, const Expression& expression);

// The same for contiguous inputs of one size, one device and dtype `what.common`, into a new tensor. It needs no iterator, which is a
// quarter of a small operator's time.
bool compute_dense(at::ArrayRef<const at::Tensor*> inputs, const Computation& what, const Expression& expression, at::Tensor& result);

// Queues out = text(inputs) over broadcast operands, each converted to `common`'s compute type, with the numbers s0, s1, ... False: nothing
// was done.
bool apply(Literal name, const at::Tensor& out, at::ArrayRef<at::Tensor> inputs, Literal text, std::initializer_list<double> numbers,
           c10::ScalarType common);
// The same into a new tensor of that dtype, with the inputs' strides.
at::Tensor apply(Literal name, c10::ScalarType dtype, at::ArrayRef<at::Tensor> inputs, Literal text, std::initializer_list<double> numbers,
                 c10::ScalarType common);

// A number, or a complex number, as a word of the kernel's struct, for the floating dtype `common`.
uint64_t word_of(double value, c10::ScalarType common);
uint64_t word_of(c10::complex<double> value);
// Rounded to a half type or a float8 type; unchanged for other dtypes.
double rounded(double value, c10::ScalarType common);
// An integer wrapped to an integral dtype.
int64_t wrapped(int64_t value, c10::ScalarType common);

}  // namespace backplane::portable
