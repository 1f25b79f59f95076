// kernels/portable/matmul.cpp: the operators that multiply matrices and vectors.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/relu_ops.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/defaults.h"
#include "kernels/portable/call.h"
#include "kernels/portable/dialect.h"
#include "kernels/portable/elementwise.h"
#include "kernels/portable/family.h"
#include "kernels/portable/product.h"
#include "tensor/tensors.h"

namespace backplane::portable {
namespace matmul_impl {
namespace {

enum class Operation : uint8_t { mm, bmm, addmm, addbmm, baddbmm, addmv, addr, dot, vdot, addmm_activation };

enum class Form : uint8_t { functional, out, inplace };

struct Call {
  at::Tensor self, a, b, out;  // self and out may be undefined
  c10::Scalar alpha = 1, beta = 1;
  c10::SmallVector<int64_t, 3> size;  // of the result
};

bool has_self(Operation operation) {
  return operation != Operation::mm && operation != Operation::bmm && operation != Operation::dot && operation != Operation::vdot;
}

bool takes(c10::ScalarType dtype, const Target& target) { return dtype != c10::kBool && (is_complex(dtype) || has_dtype(target, dtype)); }

bool is_number(const c10::Scalar& number, c10::ScalarType dtype) {
  if (number.isSymbolic() || (number.isComplex() && !is_complex(dtype))) return false;
  if (is_complex(dtype)) return true;
  return c10::isFloatingType(dtype) || number.isIntegral(/*includeBool=*/true);
}

uint64_t word(const c10::Scalar& number, c10::ScalarType dtype) {
  if (is_complex(dtype)) return word_of(number.toComplexDouble());
  return c10::isFloatingType(dtype) ? word_of(number.to<double>(), dtype) : static_cast<uint64_t>(number.to<int64_t>());
}

bool is_zero(const c10::Scalar& number) { return number.toComplexDouble() == 0.; }
bool is_real(const c10::Scalar& number) { return number.toComplexDouble().imag() == 0; }

// Sets call.size. False: the shapes do not fit.
bool fit(Operation operation, Call& call) {
  const at::IntArrayRef a = call.a.sizes();
  const at::IntArrayRef b = call.b.sizes();
  switch (operation) {
    case Operation::mm:
    case Operation::addmm:
    case Operation::addmm_activation:
      if (a.size() != 2 || b.size() != 2 || a[1] != b[0]) return false;
      call.size = {a[0], b[1]};
      return true;
    case Operation::bmm:
    case Operation::addbmm:
    case Operation::baddbmm:
      if (a.size() != 3 || b.size() != 3 || a[0] != b[0] || a[2] != b[1]) return false;
      if (operation == Operation::addbmm) {
        call.size = {a[1], b[2]};
      } else {
        call.size = {a[0], a[1], b[2]};
      }
      return true;
    case Operation::addmv:
      if (a.size() != 2 || b.size() != 1 || a[1] != b[0]) return false;
      call.size = {a[0]};
      return true;
    case Operation::addr:
      if (a.size() != 1 || b.size() != 1) return false;
      call.size = {a[0], b[0]};
      return true;
    default:
      return a.size() == 1 && b.size() == 1 && a[0] == b[0];
  }
}

Matrices matrices(const at::Tensor& tensor, int64_t batch, int64_t row, int64_t column) { return {address_of(tensor), batch, row, column}; }

// The result, or what is of its size, as matrices: the dimension that a vector lacks has no stride.
Matrices result_matrices(const at::Tensor& tensor) {
  const at::IntArrayRef strides = tensor.strides();
  switch (tensor.dim()) {
    case 0:
      return matrices(tensor, 0, 0, 0);
    case 1:
      return matrices(tensor, 0, strides[0], 0);
    case 2:
      return matrices(tensor, 0, strides[0], strides[1]);
    default:
      return matrices(tensor, strides[0], strides[1], strides[2]);
  }
}

// A result of addr: its strides follow self's.
at::Tensor new_outer(const Call& call) {
  at::TensorIteratorConfig config;
  config.add_owned_output(at::Tensor()).add_const_input(call.self).add_owned_const_input(call.a.unsqueeze(1));
  return config.add_owned_const_input(call.b.unsqueeze(0)).build().output();
}

// beta self + alpha a b^T of two vectors.
bool outer(const Call& call, const at::Tensor& out) {
  static KernelSlots with_self;
  static KernelSlots without_self;
  const c10::ScalarType dtype = out.scalar_type();
  at::TensorIteratorConfig config;
  config.add_output(out).add_owned_const_input(call.a.unsqueeze(1)).add_owned_const_input(call.b.unsqueeze(0));
  if (call.self.defined()) config.add_const_input(call.self);
  at::TensorIterator iter = config.resize_outputs(false).set_check_mem_overlap(false).build();
  Computation what{"addr", dtype};
  what.scalars = {word(call.alpha, dtype), word(call.beta, dtype)};
  const bool has_complex = is_complex(dtype);
  if (call.self.defined()) {
    const char* const text = has_complex ? "c_add(c_mul(s1, z), c_mul(c_mul(s0, x), y))" : "s1 * z + s0 * x * y";
    return compute(iter, what, {text, 2}, with_self);
  }
  return compute(iter, what, {has_complex ? "c_mul(c_mul(s0, x), y)" : "s0 * x * y", 2}, without_self);
}

bool run(Operation operation, const Call& call, const at::Tensor& out) {
  if (operation == Operation::addr) return out.numel() == 0 || outer(call, out);
  Product product{};
  product.device = out.device().index();
  product.dtype = out.scalar_type();
  const at::IntArrayRef a = call.a.strides();
  const at::IntArrayRef b = call.b.strides();
  const bool is_batch = call.a.dim() == 3;
  product.batches = is_batch ? call.a.size(0) : 1;
  product.k = call.b.size(is_batch ? 1 : 0);
  product.m = call.a.dim() == 1 ? 1 : call.a.size(-2);
  product.n = call.b.dim() == 1 ? 1 : call.b.size(-1);
  product.sums_batches = operation == Operation::addbmm;
  writable_address_of(out);  // first: it may move what self shares with it
  product.out = result_matrices(out);
  product.a = matrices(call.a, is_batch ? a[0] : 0, a.size() == 1 ? 0 : a[a.size() - 2], a.back());
  product.b = b.size() == 1 ? matrices(call.b, 0, b[0], 0) : matrices(call.b, is_batch ? b[0] : 0, b[b.size() - 2], b.back());
  if (call.self.defined()) product.self = result_matrices(call.self);
  if (is_complex(product.dtype)) {
    const double alpha = product.k == 0 ? 0 : call.alpha.toComplexDouble().real();
    return out.numel() == 0 || multiply_parts(product, alpha, call.beta.toComplexDouble().real(),
                                              call.a.is_conj() != (operation == Operation::vdot), call.b.is_conj());
  }
  product.alpha = product.k == 0 ? 0 : word(call.alpha, product.dtype);
  product.beta = word(call.beta, product.dtype);
  return out.numel() == 0 || multiply(product);
}

// By complex numbers: the product first.
bool run_scaled(Operation operation, const Call& call, const at::Tensor& out) {
  if (operation == Operation::addr || (is_real(call.alpha) && is_real(call.beta))) return run(operation, call, out);
  Call product = call;
  product.self = at::Tensor();
  product.alpha = 1;
  const at::Tensor values = empty_tensor(call.size, out.scalar_type(), out.device().index());
  if (!run(operation, product, values)) return false;
  values.mul_(call.alpha);
  out.copy_(call.self.defined() ? values.add_(call.self, call.beta) : values);
  return true;
}

// Computes the call into a tensor of the result's size. False: nothing was done.
bool compute_call(Operation operation, Form form, Call& call, at::Tensor& result) {
  const at::Tensor& first = call.a;
  const c10::ScalarType dtype = first.scalar_type();
  if (!takes(dtype, target_of(first.device().index())) || !fit(operation, call)) return false;
  if (!is_number(call.alpha, dtype) || !is_number(call.beta, dtype)) return false;
  if (form == Form::out && call.out.sizes() != at::IntArrayRef(call.size)) {
    if (operation == Operation::addbmm) {
      call.out.resize_(call.size);  // silently, as the CPU
    } else {
      at::native::resize_output(call.out, call.size);
    }
  }
  if (form == Form::inplace && call.out.sizes() != at::IntArrayRef(call.size)) return false;
  if (call.self.defined()) {
    if (!at::is_expandable_to(call.self.sizes(), call.size)) return false;
    call.self = is_zero(call.beta) ? at::Tensor() : call.self.expand(call.size);
  }
  // What is read while another part of it is written already.
  const auto is_read = [&](const at::Tensor& tensor) { return tensor.defined() && call.out.is_alias_of(tensor); };
  const bool same_self = call.self.defined() && call.out.defined() && call.self.const_data_ptr() == call.out.const_data_ptr() &&
                         call.self.strides() == call.out.strides();
  const bool direct = call.out.defined() && !is_read(call.a) && !is_read(call.b) && (same_self || !is_read(call.self));
  const at::Tensor out = direct                                                ? call.out
                         : operation == Operation::addr && call.self.defined() ? new_outer(call)
                                                                               : empty_tensor(call.size, dtype, first.device().index());
  if (!run_scaled(operation, call, out)) return false;
  if (call.out.defined() && !direct) call.out.copy_(out);
  result = call.out.defined() ? call.out : out;
  return true;
}

class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(Operation operation, Form form, KernelCounter& counter, size_t arguments)
      : operation_(operation), form_(form), counter_(counter), arguments_(arguments) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (C10_UNLIKELY(!can_compile() || kernel_policy() == KernelPolicy::off)) return decline_portable(op, keys, stack);
    const c10::IValue* values = stack->data() + stack->size() - arguments_;
    Call call;
    at::Tensor result;
    if (!read(values, call) || !compute_call(operation_, form_, call, result)) return decline_portable(op, keys, stack);
    if (operation_ == Operation::addmm_activation) activate(values[5].toBool(), result);
    counter_.count();
    stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments_), stack->end());
    stack->emplace_back(std::move(result));
  }

 private:
  // False: the arguments are none of this kernel's.
  bool read(const c10::IValue* values, Call& call) const {
    const size_t first = has_self(operation_) ? 1 : 0;
    call.a = values[first].toTensor();
    call.b = values[first + 1].toTensor();
    if (first == 1) {
      call.self = values[0].toTensor();
      call.beta = values[3].toScalar();
      call.alpha = values[4].toScalar();
    }
    if (form_ == Form::out) call.out = values[arguments_ - 1].toTensor();
    if (form_ == Form::inplace) call.out = call.self;
    for (const at::Tensor* tensor : {&call.self, &call.a, &call.b, &call.out}) {
      const bool optional = (tensor == &call.self && first == 0) || (tensor == &call.out && form_ == Form::functional);
      if (!tensor->defined() && optional) continue;
      if (!tensor->defined() || !is_on_device(*tensor) || tensor->device() != call.a.device() || tensor->layout() != c10::kStrided ||
          tensor->_is_zerotensor() || tensor->is_neg() || (tensor->is_conj() && tensor != &call.a && tensor != &call.b) ||
          tensor->scalar_type() != call.a.scalar_type()) {
        return false;
      }
    }
    return !call.out.defined() || !repeats_places(call.out);
  }

  static void activate(bool gelu, at::Tensor& result) {
    if (gelu) {
      at::_ops::gelu_::call(result, "none");
    } else {
      at::_ops::relu_::call(result);
    }
  }

  const Operation operation_;
  const Form form_;
  KernelCounter& counter_;
  const size_t arguments_;
};

void add(DefaultKernels& kernels, const char* name, Operation operation, std::initializer_list<std::pair<const char*, Form>> forms) {
  KernelCounter& counter = portable_counter(name);
  for (const auto& [form_name, form] : forms) {
    const size_t arguments = detail::find_operator(form_name).schema().arguments().size();
    kernels.impl_portable(form_name, c10::BoxedKernel::makeFromFunctor(std::make_unique<Kernel>(operation, form, counter, arguments)));
  }
}

const Defaults registered([](DefaultKernels& m) {
  add(m, "mm", Operation::mm, {{"mm", Form::functional}, {"mm.out", Form::out}});
  add(m, "bmm", Operation::bmm, {{"bmm", Form::functional}, {"bmm.out", Form::out}});
  add(m, "addmm", Operation::addmm, {{"addmm", Form::functional}, {"addmm.out", Form::out}, {"addmm_", Form::inplace}});
  add(m, "addbmm", Operation::addbmm, {{"addbmm", Form::functional}, {"addbmm.out", Form::out}, {"addbmm_", Form::inplace}});
  add(m, "baddbmm", Operation::baddbmm, {{"baddbmm", Form::functional}, {"baddbmm.out", Form::out}, {"baddbmm_", Form::inplace}});
  add(m, "addmv", Operation::addmv, {{"addmv", Form::functional}, {"addmv.out", Form::out}, {"addmv_", Form::inplace}});
  add(m, "addr", Operation::addr, {{"addr", Form::functional}, {"addr.out", Form::out}, {"addr_", Form::inplace}});
  add(m, "dot", Operation::dot, {{"dot", Form::functional}});
  add(m, "vdot", Operation::vdot, {{"vdot", Form::functional}});
  add(m, "_addmm_activation", Operation::addmm_activation, {{"_addmm_activation", Form::functional}, {"_addmm_activation.out", Form::out}});
});

}  // namespace
}  // namespace matmul_impl
}  // namespace backplane::portable
