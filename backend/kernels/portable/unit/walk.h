// kernels/portable/unit/walk.h: runs a body of the kernel dialect at every element of a shape, with its place in each operand
// (pointwise.bpc).
//
//   Walk walk("gather", index.sizes(), device);
//   walk.write(out, bits).read(index, c10::kLong).read(self, bits, strides);
//   walk.integer(size).integer(stride);
//   walk.run("const i64 at = p1[i1]; p0[i0] = at >= 0 && at < s0 ? p2[i2 + at * s1] : 0;");
//
// In a body, p0, p1, ... are the operands in memory, and i0, i1, ... the places in all operands. A count is an operand without memory,
// whose place is the sum of the coordinates times its strides. LOAD<k>(i) and STORE<k>(i, x) access an element of pk in its compute type.
// s0, s1, ... are the call's integers (i64) and numbers (C, the compute type of the first number's dtype).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <optional>

#include "kernels/portable/unit/unit.h"

namespace backplane::portable {

// How the place in an operand changes along the innermost dimension. number: a number of the host, passed as a scalar.
enum class Step : uint8_t { unit, zero, other, reversed, number };

constexpr size_t kMostOperands = 10;

// Everything that a walk's text depends on, except the body.
struct WalkForm {
  struct Operand {
    c10::ScalarType dtype;  // Undefined: a count
    Step step;
  };
  const char* expression = nullptr;  // instead of a body: elementwise.h
  std::array<Operand, kMostOperands> operands{};
  uint8_t count = 0, written = 0;  // operands; the written ones come first
  uint8_t rows = 0;                // outer dimensions; 0: one run of elements (FLAT)
  uint8_t scalars = 0;
  uint32_t numbers = 0;  // bit k: scalar k is a number, of the compute type
  c10::ScalarType computed = c10::ScalarType::Undefined;
  bool is_wide = false, is_ordered = false, reports = false;
  bool gives_bool = false, gives_part = false, is_exact = false, keeps_numbers = false, is_special = false;  // of an expression
  uint8_t strip = 0;       // columns that one item walks row by row (ACROSS); 0: whole rows
  bool is_serial = false;  // the loops are not vectorized (SERIAL)
  std::array<uint8_t, 1> unused{};
};

// Writes the definitions that pointwise.bpc needs.
void write_walk(KernelSource& source, const WalkForm& form);

// NULL: not available (yet). body: used if the form has no expression.
const Function* find_walk(Literal name, const WalkForm& form, const Part& body, c10::DeviceIndex device);
uint32_t walk_tile(const Target& target);                                                // elements of an item
uint64_t walk_groups(const Function& function, const Target& target, int64_t elements);  // of a run of them

class Walk {
 public:
  Walk(Literal name, at::IntArrayRef sizes, c10::DeviceIndex device);

  // Adds an operand in memory, its elements reinterpreted as `dtype`, of the same size. strides: in elements, one for each size; places are
  // counted from `offset` elements after the tensor's first one. Written operands come first.
  Walk& write(const at::Tensor& tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset = 0);
  Walk& read(const at::Tensor& tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset = 0);
  Walk& write(const at::Tensor& tensor, at::IntArrayRef strides) { return write(tensor, tensor.scalar_type(), strides); }
  Walk& read(const at::Tensor& tensor, at::IntArrayRef strides) { return read(tensor, tensor.scalar_type(), strides); }
  Walk& write(const at::Tensor& tensor) { return write(tensor, tensor.scalar_type(), tensor.strides()); }
  Walk& read(const at::Tensor& tensor) { return read(tensor, tensor.scalar_type(), tensor.strides()); }
  Walk& count(at::IntArrayRef strides);

  Walk& integer(int64_t value);
  // computed: the dtype whose compute type is C; the same for all numbers of a walk.
  Walk& number(double value, c10::ScalarType computed);
  // Defines C for a walk without numbers.
  Walk& compute_in(c10::ScalarType dtype);

  // The body may call REPORT(place, size): the place is out of range for `size` elements. dim: the operand's dimension, if torch's error
  // names that instead of the operator.
  Walk& reports(std::optional<int64_t> dim = std::nullopt);

  // Visits the elements along this dimension in order.
  Walk& in_order(int64_t dim);

  // Queues the walk. False: the kernel is not available.
  bool run(const Part& body);

 private:
  friend class Elementwise;
  struct Operand {
    uint64_t address;
    c10::SmallVector<int64_t, 6> strides;  // innermost first
    int64_t along = 0;                     // in the ordered dimension
  };
  Walk& add(const at::Tensor* tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset, bool is_written);
  Walk& scalar(uint64_t word, bool is_number);
  bool has_dtypes(const Target& target) const;
  void collapse(bool is_host);
  bool avoid_short_rows();
  bool has_scattered_halves() const;
  bool choose_form(const Target& target);
  bool launch(const Target& target, const Part& body);

  const Literal name_;
  const c10::DeviceIndex device_;
  WalkForm form_;
  c10::SmallVector<int64_t, 6> sizes_;  // innermost first
  c10::SmallVector<Operand, 6> operands_;
  c10::SmallVector<uint64_t, 8> scalars_;
  int64_t ordered_ = -1;  // as in sizes_
  int64_t length_ = 1;    // of that dimension
  std::optional<int64_t> reported_dim_;
};

// The strides of a dense tensor of that shape, in elements.
c10::SmallVector<int64_t, 6> dense_strides(at::IntArrayRef sizes);
// A tensor's strides with one of them replaced.
c10::SmallVector<int64_t, 6> strides_with(const at::Tensor& tensor, int64_t dim, int64_t stride);
// The strides of a tensor broadcast to `sizes`, to which it must be broadcastable.
c10::SmallVector<int64_t, 6> broadcast_strides(const at::Tensor& tensor, at::IntArrayRef sizes);

}  // namespace backplane::portable
