// kernels/portable/pointwise/pointwise.h: tables of pointwise operators, one line for each operator.
//
//   static const PointwiseTable table({
//       {"exp", Kind::to_float, kFloats, {"m_exp(x)"}},          // exp, exp.out and exp_
//       {"add.Tensor", Kind::promote, kNumbers, {"x + s0 * y"}},
//   });
//
// `name` is the functional form, or an in-place form that stands alone ("masked_fill_.Scalar"); the other forms are found in the
// dispatcher. The expression is in the kernel dialect (docs/dialect.md): x, y, z, w are the tensors in the schema's order, as values of C,
// the type to compute in (f32, f64, i32 or i64); s0, s1, ... the call's scalars in order, numbers and flags; m_...: dialect/compute.bpc.
//
// A line of complex numbers adds an expression to an operator of the other tables (dialect/complex.bpc; C is a struct):
//
//   static const ComplexTable complex_operators({{"add.Tensor", {"c_add(x, c_mul(s0, y))"}}});
//
// A vendor's kernels replace these (dispatch/defaults.h). Calls that they do not support (complex128, other layouts, a driver without a
// compiler) go to the next in line, in the end the CPU, which raises torch's errors for invalid arguments.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "kernels/portable/unit/elementwise.h"

namespace backplane::portable {

// How the dtypes are determined, as by the operator's CPU kernel.
enum class Kind : uint8_t {
  promote,          // the inputs' common dtype, which is also the result's
  to_float,         // the same, and integers become the default dtype
  compare,          // the common dtype; the result is bool
  numbers,          // of one tensor: the common dtype of it and the call's numbers, as in x ** 2
  compare_numbers,  // the same; the result is bool
  alike,            // all inputs have one dtype; other calls are the CPU's
  choose,           // as promote, and the first input is a bool tensor that chooses; the result has the common dtype
  masked,           // in place: the second input is a bool tensor that chooses
};

// The common dtypes that an expression supports.
constexpr uint8_t kIntegers = 1;
constexpr uint8_t kWide = 2;  // float32 and float64
constexpr uint8_t kHalves = 8;
constexpr uint8_t kFloats = kWide | kHalves;
constexpr uint8_t kBool = 4;
// Integers, divided by a number that is not 0: torch raises an error for 0, which a queued kernel cannot.
constexpr uint8_t kByNumber = 16;
constexpr uint8_t kNumbers = kIntegers | kFloats;
constexpr uint8_t kAll = kNumbers | kBool;
constexpr uint8_t kFloat8 = 128;
constexpr uint8_t kStored = kAll | kFloat8;
constexpr uint8_t kWithoutBool = 32;  // also where another operand decides the common dtype
constexpr uint8_t kSelfFirst = 64;    // of two tensors x is the second, whose strides the result's follow

// The arguments that select one of an operator's expressions.
struct CallOptions {
  uint32_t given = 0;     // bit i: the i-th tensor or number is there; the optional ones may be None
  double number = 0;      // the last number, or 0
  bool integers = false;  // the first tensor's elements and that number are
  std::string_view text;  // the argument that is a string, empty for None
};

using Expressions = std::array<Literal, 9>;

struct Pointwise {
  Literal name;
  Kind kind;
  uint8_t takes;
  Expressions expressions;
  HostNumbers numbers = HostNumbers::rounded;
  // The expression's index; -1: none, the call is left to the CPU. NULL: always the first.
  int (*variant)(const CallOptions& call) = nullptr;
  bool is_special = false;  // of dialect/special_compute.bpc
  Literal of_halves{};      // the expression of the bits of halves, as integers, where it takes no conversion
};

enum class Gives : uint8_t {
  number,      // complex, or bool where the operator compares
  part,        // real, as of abs
  dense_part,  // the same, and a new one is contiguous whatever the input's strides are
};

struct ComplexPointwise {
  Literal name;
  Expressions expressions;  // as many as the operator's own; NULL where the CPU has none
  Gives gives = Gives::number;
};

class ComplexTable {
 public:
  ComplexTable(std::initializer_list<ComplexPointwise> operators);
};

class PointwiseTable {
 public:
  PointwiseTable(std::initializer_list<Pointwise> operators);
  // The expressions call functions of dialect/special_compute.bpc.
  static PointwiseTable special(std::initializer_list<Pointwise> operators);

 private:
  PointwiseTable() = default;
};

}  // namespace backplane::portable
