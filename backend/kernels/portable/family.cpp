// kernels/portable/family.cpp: the boxed kernel around a family's function, and the small parts of family.h.
#include "kernels/portable/family.h"

#include <ATen/TensorIterator.h>
#include <backplane/structured.h>

#include <memory>

#include "kernels/portable/call.h"
#include "kernels/portable/elementwise.h"
#include "kernels/portable/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace family_impl {
namespace {

class Boxed final : public c10::OperatorKernel {
 public:
  explicit Boxed(Compute compute) : compute_(std::move(compute)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (C10_UNLIKELY(!can_compile() || kernel_policy() == KernelPolicy::off)) return decline_portable(op, keys, stack);
    const size_t arguments = op.schema().arguments().size();
    Results results;
    if (!compute_(stack->data() + stack->size() - arguments, results)) return decline_portable(op, keys, stack);
    stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
    for (at::Tensor& result : results) stack->emplace_back(std::move(result));
  }

 private:
  const Compute compute_;
};

}  // namespace
}  // namespace family_impl

void impl(DefaultKernels& kernels, const char* name, Compute compute) {
  kernels.impl_portable(name, c10::BoxedKernel::makeFromFunctor(std::make_unique<family_impl::Boxed>(std::move(compute))));
}

std::optional<c10::ScalarType> dtype_of(const c10::IValue& value) {
  return value.isNone() ? std::nullopt : std::optional<c10::ScalarType>(value.toScalarType());
}

at::Tensor tensor_of(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

bool can_walk(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::kPrivateUse1 && tensor.layout() == c10::kStrided && !tensor.is_neg() &&
         has_dtype(target_of(tensor.device().index()), tensor.scalar_type());
}

bool has_parts(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::kPrivateUse1 && tensor.layout() == c10::kStrided &&
         is_complex(tensor.scalar_type()) && !tensor.is_conj() && !tensor.is_neg();
}

bool is_like(const at::Tensor& tensor, const at::Tensor& other) {
  return can_walk(tensor) && tensor.scalar_type() == other.scalar_type() && tensor.device() == other.device();
}

bool can_become(const at::Tensor& out, at::IntArrayRef size, c10::ScalarType dtype, std::initializer_list<at::Tensor> inputs) {
  if ((!can_walk(out) && !has_parts(out)) || out.scalar_type() != dtype) return false;
  if (out.sizes() != size && out.numel() != 0) return false;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && (input.device() != out.device() || out.is_alias_of(input))) return false;
  }
  return true;
}

Output::Output(const at::Tensor& out, at::IntArrayRef size, c10::ScalarType dtype, c10::DeviceIndex device) : out_(out) {
  if (out_.defined() && out_.sizes() != size) out_.resize_(size);
  dense_ = out_.defined() && out_.is_contiguous() ? out_ : empty(size, dtype, device);
  if (!out_.defined()) out_ = dense_;
}

at::Tensor Output::finish() const {
  if (!dense_.is_same(out_)) out_.copy_(dense_);
  return out_;
}

void Definitions::compute_in(const std::string& type) {
  add("C", type);
  add(join("C_IS_", type), 1);
  add("AS_C(x)", type == "c64" ? "(x)" : "((C)(x))");
}

std::string load_text(c10::ScalarType dtype, const std::string& place, std::optional<c10::ScalarType> converted_to) {
  const std::string loaded = join("bp_load_", dialect_name(dtype), "(", place, ")");
  if (!converted_to || *converted_to == dtype) return loaded;
  return join("bp_to_", dialect_name(*converted_to), "(", loaded, ")");
}

static bool run(at::TensorIteratorConfig& config, const char* name, at::Tensor& out, at::ArrayRef<at::Tensor> inputs, const char* text,
                int variant, std::initializer_list<double> numbers, c10::ScalarType common, KernelSlots& slots) {
  config.resize_outputs(false).set_check_mem_overlap(false);
  for (const at::Tensor& input : inputs) config.add_const_input(input);
  at::TensorIterator iter = config.build();
  Computation what{name, common, variant};
  for (const double number : numbers) what.scalars.push_back(word_of(number, common));
  if (!compute(iter, what, {text, static_cast<int>(numbers.size())}, slots)) return false;
  if (!out.defined()) out = iter.output();
  return true;
}

bool apply(const char* name, const at::Tensor& out, at::ArrayRef<at::Tensor> inputs, const char* text, int variant,
           std::initializer_list<double> numbers, c10::ScalarType common, KernelSlots& slots) {
  if (repeats_places(out)) return false;
  at::TensorIteratorConfig config;
  at::Tensor result = out;
  config.add_output(out).check_all_same_dtype(false);
  return run(config, name, result, inputs, text, variant, numbers, common, slots);
}

at::Tensor apply(const char* name, c10::ScalarType dtype, at::ArrayRef<at::Tensor> inputs, const char* text, int variant,
                 std::initializer_list<double> numbers, c10::ScalarType common, KernelSlots& slots) {
  at::TensorIteratorConfig config;
  at::Tensor result;
  config.add_owned_output(at::Tensor()).check_all_same_dtype(false).declare_static_dtype(dtype);
  run(config, name, result, inputs, text, variant, numbers, common, slots);
  return result;
}

uint64_t address_of(const at::Tensor& tensor) {
  check_allocated(tensor);
  return reinterpret_cast<uint64_t>(tensor.const_data_ptr());
}

uint64_t writable_address_of(const at::Tensor& tensor) {
  check_allocated(tensor);
  return reinterpret_cast<uint64_t>(tensor.mutable_data_ptr());
}

// Below the half: what is beyond the end is added before it is tested.
bool has_wide_extent(const Target& target, int64_t most) { return target.is_host() || most >= (int64_t{1} << 30); }

}  // namespace backplane::portable
