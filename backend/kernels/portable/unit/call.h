// kernels/portable/unit/call.h: operators of the library as functions of the dispatcher's stack, without a template for each signature, and what
// they ask of their operands.
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
#include "kernels/portable/unit/dialect.h"
#include "modules/launch.h"

namespace backplane::portable {

// The arguments in the schema's order; an out= argument stands behind them.
class Call {
 public:
  enum class Form : uint8_t { functional, out, inplace };

  Call(const c10::IValue* values, size_t count, Form form) : values_(values), count_(count), form_(form) {}

  const c10::IValue& operator[](size_t i) const { return values_[i]; }
  const at::Tensor& tensor(size_t i) const { return values_[i].toTensor(); }
  at::Tensor tensor_or_none(size_t i) const { return has(i) ? tensor(i) : at::Tensor(); }
  std::optional<at::Generator> generator(size_t i) const { return has(i) ? std::optional(values_[i].toGenerator()) : std::nullopt; }
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

// Registers the forms of an operator, which count as calls of the first, or by a counter that others share. `unboxed`: the
// same kernel for callers without a stack, which is faster. The names live on.
void add_operator(DefaultKernels& kernels, std::initializer_list<const char*> forms, Operator compute);
void add_operator(DefaultKernels& kernels, const char* form, Operator compute, KernelCounter& counter,
                  std::optional<detail::TypedKernel> unboxed = std::nullopt);

// Whether kernels of the dialect can read it, or write it: on the device, strided, of a dtype that the dialect and the device have, and no
// conjugate or negative view.
bool is_usable(const at::Tensor& tensor);
bool is_float(const at::Tensor& tensor);  // and of a floating dtype
// The same for what moves elements without looking at them: any dtype of 1, 2, 4 or 8 bytes.
bool is_movable(const at::Tensor& tensor);
// A complex64 tensor that these kernels read as its parts, at::view_as_real().
bool has_parts(const at::Tensor& tensor);
// Whether they can use it, and it has the other's dtype and device.
bool is_like(const at::Tensor& tensor, const at::Tensor& other);

// Whether `out` can become a result of that size and dtype silently: an empty one is resized, one that has elements and another size,
// or shares memory with an input, is the CPU's, which warns or raises.
bool can_become(const at::Tensor& out, at::IntArrayRef size, c10::ScalarType dtype, std::initializer_list<at::Tensor> inputs);

// Where a kernel writes that wants its result dense: the call's tensor, resized, or memory of its own, from where finish() copies.
class Output {
 public:
  Output(const Call& call, at::IntArrayRef size, c10::ScalarType dtype, c10::Device device, size_t k = 0, size_t outputs = 1);
  const at::Tensor& dense() const { return dense_; }
  const at::Tensor& finish() const;
  void give(Call& call) const { call.give(finish()); }

 private:
  at::Tensor out_, dense_;
};

// Whether a place in memory is that of several elements, which nothing writes.
bool repeats_places(const at::Tensor& tensor);

// The integer dtype of elements of that size, as which they are moved; Undefined if there is none.
c10::ScalarType bits_of(c10::ScalarType dtype);

// What values of a floating dtype are accumulated in: float32 for half types.
inline c10::ScalarType accumulated(c10::ScalarType dtype) { return c10::isReducedFloatingType(dtype) ? c10::kFloat : dtype; }

// A dimension as a number from 0 on, one of a tensor without dimensions among them; nothing if there is none such.
std::optional<int64_t> dimension_of(int64_t dim, const at::Tensor& tensor);

uint64_t address_of(const at::Tensor& tensor);             // to be read
uint64_t writable_address_of(const at::Tensor& tensor);    // to be written
bool has_wide_extent(const Target& target, int64_t most);  // whether an index of that size is an i64

// Sorts a few elements; equal ones stay in their order. std::stable_sort is as much code again for each type as a kernel's launcher.
template <typename Range, typename Before>
void sort_few(Range& range, const Before& is_before) {
  for (size_t i = 1; i < range.size(); ++i) {
    for (size_t k = i; k > 0 && is_before(range[k], range[k - 1]); --k) std::swap(range[k], range[k - 1]);
  }
}

}  // namespace backplane::portable
