// kernels/portable/unit/call.cpp: the boxed kernels of call.h.
#include "kernels/portable/unit/call.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <backplane/kernel.h>
#include <backplane/structured.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/portable/unit/dialect.h"
#include "modules/unit.h"

namespace backplane::portable {
namespace call_impl {
namespace {

class Form final : public c10::OperatorKernel {
 public:
  Form(Operator compute, KernelCounter& counter, size_t arguments, size_t outputs, Call::Form form)
      : compute_(std::move(compute)), counter_(counter), arguments_(arguments), outputs_(outputs), form_(form) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (C10_UNLIKELY(!can_compile() || kernel_policy() == KernelPolicy::off)) return decline_portable(op, keys, stack);
    Call call(stack->data() + stack->size() - arguments_, arguments_, form_);
    if (has_repeated_output(call) || !compute_(call)) return decline_portable(op, keys, stack);
    counter_.count();
    stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments_), stack->end());
    for (c10::IValue& result : call.results) stack->push_back(std::move(result));
  }

 private:
  // Whether elements of an out= argument share memory; the CPU raises.
  bool has_repeated_output(const Call& call) const {
    for (size_t k = 0; k < outputs_; ++k) {
      if (repeats_places(*call.given(k, outputs_))) return true;
    }
    return false;
  }

  const Operator compute_;
  KernelCounter& counter_;
  const size_t arguments_, outputs_;
  const Call::Form form_;
};

}  // namespace
}  // namespace call_impl

at::Tensor Call::output(at::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device, size_t k, size_t outputs) const {
  const at::Tensor* out = given(k, outputs);
  if (out == nullptr) return empty(sizes, dtype, device.index());
  if (out->scalar_type() != dtype || out->device() != device || out->layout() != c10::kStrided) return {};
  at::native::resize_output(*out, sizes);
  return *out;
}

void Call::give(const at::Tensor& result) { results.emplace_back(result); }

void add_operator(DefaultKernels& kernels, const char* form, Operator compute, KernelCounter& counter,
                  std::optional<detail::TypedKernel> unboxed) {
  const std::vector<c10::Argument>& arguments = detail::find_operator(form).schema().arguments();
  const auto is_written = [](const c10::Argument& one) { return one.alias_info() != nullptr && one.alias_info()->isWrite(); };
  const Call::Form kind = arguments.back().is_out()       ? Call::Form::out
                          : is_written(arguments.front()) ? Call::Form::inplace
                                                          : Call::Form::functional;
  const auto outputs = std::count_if(arguments.begin(), arguments.end(), [](const c10::Argument& one) { return one.is_out(); });
  auto kernel = std::make_unique<call_impl::Form>(std::move(compute), counter, arguments.size(), outputs, kind);
  kernels.impl_portable(form, c10::BoxedKernel::makeFromFunctor(std::move(kernel)), std::move(unboxed));
}

void add_operator(DefaultKernels& kernels, std::initializer_list<const char*> forms, Operator compute) {
  KernelCounter& counter = portable_counter(*forms.begin());
  for (const char* form : forms) add_operator(kernels, form, compute, counter);
}

bool give(Call& call, const at::Tensor& result, std::initializer_list<at::Tensor> inputs, size_t k, size_t outputs) {
  const at::Tensor* const given = call.given(k, outputs);
  if (given == nullptr) {
    call.give(result);
    return true;
  }
  const at::Tensor out = *given;
  if (call.form() == Call::Form::out) {
    if (!can_become(out, result.sizes(), result.scalar_type(), inputs)) return false;
    at::native::resize_output(out, result.sizes());
  } else if (out.sizes() != result.sizes()) {
    return false;
  }
  out.copy_(result);
  call.give(out);
  return true;
}

bool compute_parts(Call& call, bool (*compute)(Call&), std::optional<size_t> dim, std::optional<size_t> index) {
  const int64_t dims = call.tensor(0).dim();
  std::vector<c10::IValue> values;
  for (size_t i = 0; i < call.size(); ++i) {
    values.push_back(call[i]);
    c10::IValue& value = values.back();
    if (i == dim) {
      if (value.toInt() < 0) value = value.toInt() + dims;
    } else if (value.isTensor() && value.toTensor().is_complex()) {
      if (!has_parts(value.toTensor())) return false;
      value = at::view_as_real(value.toTensor());
    } else if (i == index) {
      const at::Tensor places = value.toTensor().unsqueeze(-1);
      at::DimVector sizes(places.sizes());
      sizes.back() = 2;
      value = places.expand(sizes);
    }
  }
  Call parts(values.data(), values.size(), call.form());
  if (dims == 0 || (call.form() == Call::Form::out && call.given()->sizes() != call.tensor(0).sizes()) || !compute(parts)) return false;
  call.give(call.is_functional() ? at::view_as_complex(parts.results[0].toTensor()) : *call.given());
  return true;
}

bool compute_each_part(Call& call, bool (*compute)(Call&)) {
  const size_t inputs = call.size() - (call.form() == Call::Form::out ? 1 : 0);
  at::Tensor results[2];
  for (const int64_t part : {0, 1}) {
    std::vector<c10::IValue> values;
    for (size_t i = 0; i < inputs; ++i) {
      const bool has_complex = call[i].isTensor() && call.tensor(i).is_complex();
      if (has_complex && !has_parts(call.tensor(i))) return false;
      values.push_back(has_complex ? at::view_as_real(call.tensor(i)).select(-1, part) : call[i]);
    }
    Call one(values.data(), values.size(), Call::Form::functional);
    if (!compute(one)) return false;
    results[part] = one.results[0].toTensor();
  }
  return give(call, at::complex(results[0], results[1]), {call.tensor(0)});
}

bool write_parts(Call& call, bool (*compute)(Call&), size_t number) {
  if (!has_parts(call.tensor(0))) return false;
  const c10::complex<double> value = call[number].toScalar().toComplexDouble();
  std::vector<c10::IValue> values;
  for (size_t i = 0; i < call.size(); ++i) values.push_back(call[i]);
  const at::Tensor both = at::view_as_real(call.tensor(0));
  for (const int64_t part : {0, 1}) {
    values[0] = both.select(-1, part);
    values[number] = part == 0 ? value.real() : value.imag();
    Call one(values.data(), values.size(), Call::Form::inplace);
    if (!compute(one)) return false;
  }
  call.give(call.tensor(0));
  return true;
}

bool is_usable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::kPrivateUse1 && tensor.layout() == c10::kStrided && !tensor.is_neg() &&
         has_dtype(target_of(tensor.device().index()), tensor.scalar_type());
}

bool is_float(const at::Tensor& tensor) { return is_usable(tensor) && c10::isFloatingType(tensor.scalar_type()); }

bool is_movable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::kPrivateUse1 && tensor.layout() == c10::kStrided &&
         bits_of(tensor.scalar_type()) != c10::ScalarType::Undefined;
}

bool has_parts(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::kPrivateUse1 && tensor.layout() == c10::kStrided &&
         is_complex(tensor.scalar_type()) && !tensor.is_conj() && !tensor.is_neg();
}

bool is_like(const at::Tensor& tensor, const at::Tensor& other) {
  return is_usable(tensor) && tensor.scalar_type() == other.scalar_type() && tensor.device() == other.device();
}

bool can_become(const at::Tensor& out, at::IntArrayRef size, c10::ScalarType dtype, std::initializer_list<at::Tensor> inputs) {
  if ((!is_usable(out) && !has_parts(out)) || out.scalar_type() != dtype) return false;
  if (out.sizes() != size && out.numel() != 0) return false;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && (input.device() != out.device() || out.is_alias_of(input))) return false;
  }
  return true;
}

Output::Output(const Call& call, at::IntArrayRef size, c10::ScalarType dtype, c10::Device device, size_t k, size_t outputs) {
  if (const at::Tensor* given = call.given(k, outputs)) out_ = *given;
  if (out_.defined() && out_.sizes() != size) out_.resize_(size);
  dense_ = out_.defined() && out_.is_contiguous() ? out_ : empty(size, dtype, device.index());
  if (!out_.defined()) out_ = dense_;
}

const at::Tensor& Output::finish() const {
  if (!dense_.is_same(out_)) out_.copy_(dense_);
  return out_;
}

bool repeats_places(const at::Tensor& tensor) { return at::has_internal_overlap(tensor) == at::MemOverlap::Yes; }

c10::ScalarType bits_of(c10::ScalarType dtype) {
  switch (c10::elementSize(dtype)) {
    case 1:
      return c10::kByte;
    case 2:
      return c10::kShort;
    case 4:
      return c10::kInt;
    case 8:
      return c10::kLong;
    default:
      return c10::ScalarType::Undefined;
  }
}

std::optional<int64_t> dimension_of(int64_t dim, const at::Tensor& tensor) {
  const int64_t dims = std::max<int64_t>(tensor.dim(), 1);
  if (dim < -dims || dim >= dims) return std::nullopt;
  return dim < 0 ? dim + dims : dim;
}

uint64_t address_of(const at::Tensor& tensor) {
  check_allocated(tensor);
  return reinterpret_cast<uint64_t>(tensor.const_data_ptr());
}

uint64_t writable_address_of(const at::Tensor& tensor) {
  check_allocated(tensor);
  return reinterpret_cast<uint64_t>(tensor.mutable_data_ptr());
}

// Below half of the range: kernels add to an index before they test it.
bool has_wide_extent(const Target& target, int64_t most) { return target.is_host() || most >= (int64_t{1} << 30); }

}  // namespace backplane::portable
