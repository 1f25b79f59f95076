// kernels/portable/call.h: operators of the library that are functions of the dispatcher's stack: no template for each signature.
//
//   bool gather(Call& call);                                   // false: not taken, nothing was done
//   add_operator(kernels, {"gather", "gather.out"}, &gather);  // the forms of one operator: out= and in-place ones by their names
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <backplane/structured.h>  // empty()
#include <c10/util/SmallVector.h>

#include <functional>
#include <initializer_list>
#include <optional>

#include "dispatch/defaults.h"

namespace backplane::portable {

// The arguments in the schema's order; an out= argument stands behind them.
class Call {
 public:
  enum class Form : uint8_t { functional, out, inplace };

  Call(const c10::IValue* values, size_t count, Form form) : values_(values), count_(count), form_(form) {}

  const c10::IValue& operator[](size_t i) const { return values_[i]; }
  const at::Tensor& tensor(size_t i) const { return values_[i].toTensor(); }
  bool has(size_t i) const { return !values_[i].isNone(); }
  size_t size() const { return count_; }
  Form form() const { return form_; }
  bool is_functional() const { return form_ == Form::functional; }

  // What the caller wants written; NULL in the functional form. k: which of several out= arguments.
  const at::Tensor* given(size_t k = 0, size_t outputs = 1) const {
    return form_ == Form::inplace ? &values_[0].toTensor() : form_ == Form::out ? &values_[count_ - outputs + k].toTensor() : nullptr;
  }

  // A new tensor, or the out= one in that size; undefined if that has another dtype or lies elsewhere.
  at::Tensor output(at::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device, size_t k = 0, size_t outputs = 1) const;

  void give(c10::IValue result) { results.push_back(std::move(result)); }
  void give(const at::Tensor& result);

  c10::SmallVector<c10::IValue, 2> results;

 private:
  const c10::IValue* values_;
  size_t count_;
  Form form_;
};

using Operator = std::function<bool(Call& call)>;

// Gives what was computed as a new tensor: itself, or, for out= and in place, copied. False: the CPU warns of that out=, or refuses it, or
// it shares memory with an input.
bool give(Call& call, const at::Tensor& result, std::initializer_list<at::Tensor> inputs, size_t k = 0, size_t outputs = 1);

// Computes a complex call as that of the parts, each tensor with a last dimension of two: false as `compute` is, or for no dimensions. dim,
// index: arguments that name a dimension, and places along it.
bool compute_parts(Call& call, bool (*compute)(Call&), std::optional<size_t> dim = {}, std::optional<size_t> index = {});
// The same where each part is a call of its own, of operators that are linear.
bool compute_each_part(Call& call, bool (*compute)(Call&));
// In place, for a complex number in argument `number`: each part is written by itself.
bool write_parts(Call& call, bool (*compute)(Call&), size_t number);

// Registers the forms of an operator, which count as calls of the first.
// The names live on.
void add_operator(DefaultKernels& kernels, std::initializer_list<const char*> forms, const Operator& compute);
void add_operator(DefaultKernels& kernels, std::initializer_list<const char*> forms, bool (*compute)(Call& call));

// Whether kernels of the dialect can read it, or write it: on the device, strided, of a dtype that the dialect and the device have.
bool is_usable(const at::Tensor& tensor);
// The same for what moves elements without looking at them: any dtype of 1, 2, 4 or 8 bytes.
bool is_movable(const at::Tensor& tensor);

// Whether a place in memory is that of several elements, which nothing writes.
bool repeats_places(const at::Tensor& tensor);

// The integer dtype of elements of that size, as which they are moved; Undefined if there is none.
c10::ScalarType bits_of(c10::ScalarType dtype);

}  // namespace backplane::portable
