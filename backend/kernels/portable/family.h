// kernels/portable/family.h: what the families of this folder share that are not pointwise: boxed kernels, checks of operands, the lines
// in front of a kernel's text.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>

#include "dispatch/defaults.h"
#include "kernels/portable/dialect.h"
#include "kernels/portable/text.h"
#include "modules/launch.h"

namespace backplane::portable {

using Results = c10::SmallVector<at::Tensor, 4>;

// Computes a call from its arguments, in the schema's order, and gives the results. False: nothing was done, and the next in line computes.
using Compute = std::function<bool(const c10::IValue* arguments, Results& results)>;

// A portable kernel of aten::name, boxed.
void impl(DefaultKernels& kernels, const char* name, Compute compute);

// Of an argument that may be None.
std::optional<c10::ScalarType> dtype_of(const c10::IValue& value);
at::Tensor tensor_of(const c10::IValue& value);  // undefined for None

// Whether these kernels walk the tensor: on a device, strided, with a dtype of the dialect and of that device's target, no conjugate or
// negative view.
bool can_walk(const at::Tensor& tensor);

// A complex64 tensor that these kernels read as its parts, at::view_as_real().
bool has_parts(const at::Tensor& tensor);

// Whether these kernels walk it, and it has the other's dtype and device.
bool is_like(const at::Tensor& tensor, const at::Tensor& other);

// Whether `out` can become a result of that size and dtype without a word: an empty one is resized, one that has elements and another size,
// or shares memory with an input, is the CPU's, which warns or raises.
bool can_become(const at::Tensor& out, at::IntArrayRef size, c10::ScalarType dtype, std::initializer_list<at::Tensor> inputs);

// Where a kernel writes that wants its result dense: the given tensor, resized, or memory of its own. finish() copies from there.
class Output {
 public:
  // `out` may be undefined: then the result is a new tensor.
  Output(const at::Tensor& out, at::IntArrayRef size, c10::ScalarType dtype, c10::DeviceIndex device);
  const at::Tensor& dense() const { return dense_; }
  at::Tensor finish() const;

 private:
  at::Tensor out_, dense_;
};

// Lines of #define.
class Definitions {
 public:
  template <typename... Parts>
  void add(const Part& name, const Parts&... value) {
    define(text_, name, value...);
  }
  // C, the type that is computed in, and C_IS_<type>, which dialect/compute.bpc asks for.
  void compute_in(const std::string& type);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// "bp_load_bf16(p, i)" of a dtype; `converted_to`: as storing it as that dtype, and reading it again, would change it.
std::string load_text(c10::ScalarType dtype, const std::string& place, std::optional<c10::ScalarType> converted_to = std::nullopt);

// Queues out = text(inputs) of broadcast operands, each as a value of `common`'s compute type (elementwise.h); false: nothing was done.
bool apply(const char* name, const at::Tensor& out, at::ArrayRef<at::Tensor> inputs, const char* text, int variant,
           std::initializer_list<double> numbers, c10::ScalarType common, KernelSlots& slots);
// The same to a new tensor of that dtype, with strides as the inputs'.
at::Tensor apply(const char* name, c10::ScalarType dtype, at::ArrayRef<at::Tensor> inputs, const char* text, int variant,
                 std::initializer_list<double> numbers, c10::ScalarType common, KernelSlots& slots);

// Sorts a few elements; equal ones stay in their order. std::stable_sort is as much code again for each type as a kernel's launcher.
template <typename Range, typename Before>
void sort_few(Range& range, const Before& is_before) {
  for (size_t i = 1; i < range.size(); ++i) {
    for (size_t k = i; k > 0 && is_before(range[k], range[k - 1]); --k) std::swap(range[k], range[k - 1]);
  }
}

// What values of a floating dtype are accumulated in: float32 for half types.
inline c10::ScalarType accumulated(c10::ScalarType dtype) { return c10::isReducedFloatingType(dtype) ? c10::kFloat : dtype; }

uint64_t address_of(const at::Tensor& tensor);             // to be read
uint64_t writable_address_of(const at::Tensor& tensor);    // to be written
bool has_wide_extent(const Target& target, int64_t most);  // whether an index of that size is an i64

}  // namespace backplane::portable
