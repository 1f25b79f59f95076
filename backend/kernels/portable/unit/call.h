// kernels/portable/unit/call.h: boxed kernels: operators of the library as functions of the dispatcher's stack, without a template for each
// signature, and the predicates by which they accept operands.
//
//   bool gather(Call& call);                                   // false: not supported, nothing was done
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

// The arguments in the schema's order, out= arguments last.
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

  // The tensor that the caller passed for the result; NULL in the functional form. k: which of several out= arguments.
  const at::Tensor* given(size_t k = 0, size_t outputs = 1) const {
    return form_ == Form::inplace ? &values_[0].toTensor() : form_ == Form::out ? &values_[count_ - outputs + k].toTensor() : nullptr;
  }

  // A new tensor, or the out= tensor resized; undefined if that has another dtype or device.
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

// Returns `result` to the caller: as it is, or, for out= and in-place forms, by a copy. False: torch warns about that out= or refuses it,
// or it shares memory with an input.
bool give(Call& call, const at::Tensor& result, std::initializer_list<at::Tensor> inputs, size_t k = 0, size_t outputs = 1);

// Computes a complex call by its real view: each tensor gets a last dimension of two. False if `compute` returns false, or for 0-dim
// tensors. dim, index: the positions of arguments that are a dimension, and indices along it.
bool compute_parts(Call& call, bool (*compute)(Call&), std::optional<size_t> dim = {}, std::optional<size_t> index = {});
// The same by one call for each part, for linear operators.
bool compute_each_part(Call& call, bool (*compute)(Call&));
// In place, with a complex number in argument `number`: writes each part separately.
bool write_parts(Call& call, bool (*compute)(Call&), size_t number);

// Registers the forms of an operator. Calls are counted under the first name, or by a shared counter. `unboxed`: the same kernel for
// callers without a stack, which is faster. The names must outlive the process's use of them (literals).
void add_operator(DefaultKernels& kernels, std::initializer_list<const char*> forms, Operator compute);
void add_operator(DefaultKernels& kernels, const char* form, Operator compute, KernelCounter& counter,
                  std::optional<detail::TypedKernel> unboxed = std::nullopt);

// Whether kernels of the dialect can read or write it: strided, on the device, of a dtype that the dialect and the device support, and not
// a conjugate or negative view.
bool is_usable(const at::Tensor& tensor);
bool is_float(const at::Tensor& tensor);  // and of a floating dtype
// The same for kernels that move elements and do not compute: any dtype of 1, 2, 4 or 8 bytes.
bool is_movable(const at::Tensor& tensor);
// Whether it is a complex64 tensor that kernels can read through at::view_as_real().
bool has_parts(const at::Tensor& tensor);
// Whether it is usable and has the other's dtype and device.
bool is_like(const at::Tensor& tensor, const at::Tensor& other);

// Whether `out` can hold a result of that size and dtype without a warning: an empty tensor is resized. One with elements and another size,
// or that shares memory with an input, is left to the CPU, which warns or raises.
bool can_become(const at::Tensor& out, at::IntArrayRef size, c10::ScalarType dtype, std::initializer_list<at::Tensor> inputs);

// The destination of a kernel that writes a dense result: the caller's tensor, resized, or temporary memory that finish() copies from.
class Output {
 public:
  Output(const Call& call, at::IntArrayRef size, c10::ScalarType dtype, c10::Device device, size_t k = 0, size_t outputs = 1);
  const at::Tensor& dense() const { return dense_; }
  const at::Tensor& finish() const;
  void give(Call& call) const { call.give(finish()); }

 private:
  at::Tensor out_, dense_;
};

// Whether several elements share an address; such a tensor cannot be written.
bool repeats_places(const at::Tensor& tensor);

// The integer dtype of the same size, for moving elements; Undefined if there is none.
c10::ScalarType bits_of(c10::ScalarType dtype);

// The accumulation dtype of a floating dtype: float32 for half types.
inline c10::ScalarType accumulated(c10::ScalarType dtype) { return c10::isReducedFloatingType(dtype) ? c10::kFloat : dtype; }

// The dimension, wrapped to 0 or more; a 0-dim tensor counts as one of one dimension. None if it is out of range.
std::optional<int64_t> dimension_of(int64_t dim, const at::Tensor& tensor);

uint64_t address_of(const at::Tensor& tensor);             // to be read
uint64_t writable_address_of(const at::Tensor& tensor);    // to be written
bool has_wide_extent(const Target& target, int64_t most);  // whether an index of that size is an i64

// A stable sort of a few elements. std::stable_sort doubles the code of a kernel's launcher for each type.
template <typename Range, typename Before>
void sort_few(Range& range, const Before& is_before) {
  for (size_t i = 1; i < range.size(); ++i) {
    for (size_t k = i; k > 0 && is_before(range[k], range[k - 1]); --k) std::swap(range[k], range[k - 1]);
  }
}

}  // namespace backplane::portable
