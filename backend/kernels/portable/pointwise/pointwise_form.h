// kernels/portable/pointwise/pointwise_form.h: a form of a table's operator (pointwise.h): what a call computes, and whether these kernels
// support it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/portable/pointwise/pointwise.h"
#include "kernels/portable/unit/call.h"

namespace at {
struct TensorIteratorBase;
}
namespace c10 {
struct FunctionSchema;
}

namespace backplane::portable {

struct PointwiseCall;

// What the forms of an operator share.
struct PointwiseOperator {
  PointwiseOperator(const Pointwise& line, std::optional<ComplexPointwise> complex);
  const Pointwise line;
  const std::optional<ComplexPointwise> complex;
  KernelCounter& counter;
};

// Any thread.
class PointwiseForm {
 public:
  // The role of a schema's argument.
  enum class Role : uint8_t { operand, number, text, output };

  // Throws for a schema that these kernels do not support.
  PointwiseForm(std::shared_ptr<PointwiseOperator> shared, Call::Form which, const c10::FunctionSchema& schema);

  size_t arguments() const { return roles_.size(); }

  // False: the call is not supported, and nothing was computed.
  bool compute(const c10::IValue* values, at::Tensor& result) const;
  // With all arguments present, tensors first.
  bool compute(std::initializer_list<const at::Tensor*> tensors, const c10::Scalar* number, at::Tensor& result) const;

 private:
  bool compute(PointwiseCall& call, at::Tensor& result) const;
  bool read(const c10::IValue* values, PointwiseCall& call) const;
  c10::ScalarType build(const PointwiseCall& call, at::TensorIteratorBase& iter) const;
  bool is_dense(const PointwiseCall& call) const;
  bool gives_part(const PointwiseCall& call) const;
  bool can_hold(const PointwiseCall& call) const;

  const std::shared_ptr<PointwiseOperator> operator_;
  const Call::Form which_;
  const std::vector<Role> roles_;
};

}  // namespace backplane::portable
