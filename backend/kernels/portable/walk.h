// kernels/portable/walk.h: one body of the kernel dialect at every element of a shape, with a place in each operand (pointwise.bpc).
//
//   Walk walk("gather", index.sizes(), device);
//   walk.write(out, bits).read(index, c10::kLong).read(self, bits, strides);
//   walk.integer(size).integer(stride);
//   walk.run("const i64 at = p1[i1]; p0[i0] = at >= 0 && at < s0 ? p2[i2 + at * s1] : 0;", slots);
//
// In a body p0, p1, ... are the operands that have memory, and i0, i1, ... the places of all operands; a count is an operand without
// memory, whose place is a sum of the coordinates times its strides. LOAD<k>(i), STORE<k>(i, x): an element of pk as the dialect computes
// it. s0, s1, ...: the call's integers (i64) and numbers (C, the type of the first number's dtype, which math.bpc and compute.bpc then
// know).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "modules/launch.h"

namespace backplane::portable {

class Walk {
 public:
  Walk(const char* name, at::IntArrayRef sizes, c10::DeviceIndex device);

  // An operand in memory, whose elements are taken as of `dtype`, which has their size. strides: in elements, as many as sizes; the place
  // begins `offset` elements behind the tensor's first one.
  Walk& write(const at::Tensor& tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset = 0);
  Walk& read(const at::Tensor& tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset = 0);
  Walk& write(const at::Tensor& tensor, at::IntArrayRef strides) { return write(tensor, tensor.scalar_type(), strides); }
  Walk& read(const at::Tensor& tensor, at::IntArrayRef strides) { return read(tensor, tensor.scalar_type(), strides); }
  Walk& write(const at::Tensor& tensor) { return write(tensor, tensor.scalar_type(), tensor.strides()); }
  Walk& read(const at::Tensor& tensor) { return read(tensor, tensor.scalar_type(), tensor.strides()); }
  Walk& count(at::IntArrayRef strides);

  Walk& integer(int64_t value);
  // computed: the dtype that decides about C; the same for all numbers of a walk.
  Walk& number(double value, c10::ScalarType computed);
  // C without a number.
  Walk& compute_in(c10::ScalarType dtype);

  // The body may say REPORT(place, size): the place is out of range for the `size` elements that there are. dim: of the operand, where
  // torch's error tells that and not the operator.
  Walk& reports(std::optional<int64_t> dim = std::nullopt);

  // Elements that differ in this dimension alone follow each other, from the first on (ordered.bpc).
  Walk& in_order(int64_t dim);

  // Queues it. False: there is no such kernel. Of `slots` a body and a variant (0 to 15) make one operator.
  bool run(const char* body, KernelSlots& slots, int variant = 0);

 private:
  static constexpr int kMost = 10;
  struct Operand {
    uint64_t address;
    c10::ScalarType dtype;  // Undefined: a count
    bool is_written;
    c10::SmallVector<int64_t, 6> strides;  // innermost first
  };
  struct Scalar {
    uint64_t word;
    bool is_number;
  };
  Walk& add(const at::Tensor* tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset, bool is_written);
  void collapse(bool is_host);

  const char* const name_;
  const c10::DeviceIndex device_;
  c10::SmallVector<int64_t, 6> sizes_;  // innermost first
  c10::SmallVector<Operand, 6> operands_;
  c10::SmallVector<Scalar, 8> scalars_;
  int64_t ordered_ = -1;  // as in sizes_
  bool reports_ = false;
  std::optional<int64_t> reported_dim_;
  c10::ScalarType computed_ = c10::ScalarType::Undefined;
};

// Strides in elements for a walk over `sizes` of a dense tensor of that shape.
c10::SmallVector<int64_t, 6> dense_strides(at::IntArrayRef sizes);
// A tensor's strides with one of them replaced.
c10::SmallVector<int64_t, 6> strides_with(const at::Tensor& tensor, int64_t dim, int64_t stride);
// Of a tensor that is broadcast to `sizes`, which it can be.
c10::SmallVector<int64_t, 6> broadcast_strides(const at::Tensor& tensor, at::IntArrayRef sizes);

}  // namespace backplane::portable
