// kernels/portable/matrix/matmul.cpp: operators that multiply matrices and vectors.
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
#include "kernels/portable/matrix/product.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"
#include "tensor/tensors.h"

namespace backplane::portable {
namespace matmul_impl {
namespace {

enum class Operation : uint8_t { mm, bmm, addmm, addbmm, baddbmm, addmv, addr, dot, vdot, addmm_activation };

struct Factors {
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
bool fit(Operation operation, Factors& call) {
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

// A tensor of the result's size as matrices: a vector's missing dimension has stride 0.
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
at::Tensor new_outer(const Factors& call) {
  at::TensorIteratorConfig config;
  config.add_owned_output(at::Tensor()).add_const_input(call.self).add_owned_const_input(call.a.unsqueeze(1));
  return config.add_owned_const_input(call.b.unsqueeze(0)).build().output();
}

// Products without a sum: of two vectors, or of matrices of one column and matrices of one row.
bool outer(const Factors& call, const at::Tensor& out) {
  const c10::ScalarType dtype = out.scalar_type();
  const bool of_vectors = call.a.dim() == 1;
  at::TensorIteratorConfig config;
  config.add_output(out).add_owned_const_input(of_vectors ? call.a.unsqueeze(1) : call.a);
  config.add_owned_const_input(of_vectors ? call.b.unsqueeze(0) : call.b);
  if (call.self.defined()) config.add_const_input(call.self);
  at::TensorIterator iter = config.resize_outputs(false).set_check_mem_overlap(false).build();
  Computation what{"addr", dtype};
  what.scalars = {word(call.alpha, dtype), word(call.beta, dtype)};
  const bool has_complex = is_complex(dtype);
  if (call.self.defined()) {
    const Literal text = has_complex ? Literal("c_add(c_mul(s1, z), c_mul(c_mul(s0, x), y))") : Literal("s1 * z + s0 * x * y");
    return portable::compute(iter, what, {text, 2});
  }
  return portable::compute(iter, what, {has_complex ? Literal("c_mul(c_mul(s0, x), y)") : Literal("s0 * x * y"), 2});
}

bool run(Operation operation, const Factors& call, const at::Tensor& out) {
  const bool has_one_term =
      (operation == Operation::mm || operation == Operation::bmm) && call.a.size(-1) == 1 && !is_complex(call.a.scalar_type());
  if (operation == Operation::addr || has_one_term) return out.numel() == 0 || outer(call, out);
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
  writable_address_of(out);  // first: it may move memory that self shares
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

// Whether all matrices of the batch are multiplied by the same one, so that they can be one matrix: as they lie there, or copied where a
// product is so small that it mostly rearranges the common factor.
bool can_be_one(Operation operation, const Factors& call, const at::Tensor& out) {
  constexpr int64_t kFewRows = 64;
  return operation == Operation::bmm && call.b.size(0) > 1 && call.b.stride(0) == 0 && out.is_contiguous() &&
         (call.a.is_contiguous() || call.a.size(1) < kFewRows);
}

// For complex numbers: the product first.
bool run_scaled(Operation operation, const Factors& call, const at::Tensor& out) {
  if (can_be_one(operation, call, out)) {
    Factors one;
    one.a = call.a.reshape({-1, call.a.size(2)});
    one.b = call.b.select(0, 0);
    return run(Operation::mm, one, out.view({-1, out.size(2)}));
  }
  if (operation == Operation::addr || (is_real(call.alpha) && is_real(call.beta))) return run(operation, call, out);
  Factors product = call;
  product.self = at::Tensor();
  product.alpha = 1;
  const at::Tensor values = empty_tensor(call.size, out.scalar_type(), out.device().index());
  if (!run(operation, product, values)) return false;
  values.mul_(call.alpha);
  out.copy_(call.self.defined() ? values.add_(call.self, call.beta) : values);
  return true;
}

// Computes the call into a tensor of the result's size. False: nothing was done.
bool compute_call(Operation operation, Call::Form form, Factors& call, at::Tensor& result) {
  const at::Tensor& first = call.a;
  const c10::ScalarType dtype = first.scalar_type();
  if (!takes(dtype, target_of(first.device().index())) || !fit(operation, call)) return false;
  if (!is_number(call.alpha, dtype) || !is_number(call.beta, dtype)) return false;
  if (form == Call::Form::out && call.out.sizes() != at::IntArrayRef(call.size)) {
    if (operation == Operation::addbmm) {
      call.out.resize_(call.size);  // without a warning, as on the CPU
    } else {
      at::native::resize_output(call.out, call.size);
    }
  }
  if (form == Call::Form::inplace && call.out.sizes() != at::IntArrayRef(call.size)) return false;
  if (call.self.defined()) {
    if (!at::is_expandable_to(call.self.sizes(), call.size)) return false;
    call.self = is_zero(call.beta) ? at::Tensor() : call.self.expand(call.size);
  }
  // A tensor that would be read after a part of it was written.
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

// False: the arguments are not supported.
bool read(Operation operation, const Call& given, Factors& call) {
  const size_t first = has_self(operation) ? 1 : 0;
  call.a = given.tensor(first);
  call.b = given.tensor(first + 1);
  if (first == 1) {
    call.self = given.tensor(0);
    call.beta = given[3].toScalar();
    call.alpha = given[4].toScalar();
  }
  if (!given.is_functional()) call.out = *given.given();
  for (const at::Tensor* tensor : {&call.self, &call.a, &call.b, &call.out}) {
    const bool optional = (tensor == &call.self && first == 0) || (tensor == &call.out && given.is_functional());
    if (!tensor->defined() && optional) continue;
    if (!tensor->defined() || !is_on_device(*tensor) || tensor->device() != call.a.device() || tensor->layout() != c10::kStrided ||
        tensor->_is_zerotensor() || tensor->is_neg() || (tensor->is_conj() && tensor != &call.a && tensor != &call.b) ||
        tensor->scalar_type() != call.a.scalar_type()) {
      return false;
    }
  }
  return !call.out.defined() || !repeats_places(call.out);
}

template <Operation operation>
bool compute(Call& call) {
  Factors factors;
  at::Tensor result;
  if (!read(operation, call, factors) || !compute_call(operation, call.form(), factors, result)) return false;
  if constexpr (operation == Operation::addmm_activation) {
    if (call[5].toBool()) {
      at::_ops::gelu_::call(result, "none");
    } else {
      at::_ops::relu_::call(result);
    }
  }
  call.give(c10::IValue(std::move(result)));
  return true;
}

// int8 x int8 with sums of int32. A host's CPU has instructions for them, which the kernels' C does not reach.
bool int_mm(Call& call) {
  const at::Tensor &a = call.tensor(0), &b = call.tensor(1);
  for (const at::Tensor* factor : {&a, &b}) {
    if (!is_on_device(*factor) || factor->device() != a.device() || factor->layout() != c10::kStrided || factor->dim() != 2 ||
        factor->scalar_type() != c10::kChar) {
      return false;
    }
  }
  const Target& target = target_of(a.device().index());
  if (target.is_host() || !has_dtype(target, c10::kChar) || a.size(1) != b.size(0)) return false;
  at::Tensor out = call.output({a.size(0), b.size(1)}, c10::kInt, a.device());
  if (!out.defined() || !out.is_contiguous() || out.is_alias_of(a) || out.is_alias_of(b)) return false;
  Product product{};
  product.device = a.device().index();
  product.dtype = c10::kChar;
  product.keeps_sums = true;
  product.batches = 1;
  product.m = a.size(0);
  product.k = a.size(1);
  product.n = b.size(1);
  writable_address_of(out);
  product.out = result_matrices(out);
  product.a = result_matrices(a);
  product.b = result_matrices(b);
  product.alpha = product.k == 0 ? 0 : one_of(product.dtype);
  if (out.numel() != 0 && !multiply(product)) return false;
  call.give(std::move(out));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"mm", "mm.out"}, &compute<Operation::mm>);
  add_operator(kernels, {"bmm", "bmm.out"}, &compute<Operation::bmm>);
  add_operator(kernels, {"addmm", "addmm.out", "addmm_"}, &compute<Operation::addmm>);
  add_operator(kernels, {"addbmm", "addbmm.out", "addbmm_"}, &compute<Operation::addbmm>);
  add_operator(kernels, {"baddbmm", "baddbmm.out", "baddbmm_"}, &compute<Operation::baddbmm>);
  add_operator(kernels, {"addmv", "addmv.out", "addmv_"}, &compute<Operation::addmv>);
  add_operator(kernels, {"addr", "addr.out", "addr_"}, &compute<Operation::addr>);
  add_operator(kernels, {"dot"}, &compute<Operation::dot>);
  add_operator(kernels, {"vdot"}, &compute<Operation::vdot>);
  add_operator(kernels, {"_int_mm", "_int_mm.out"}, &int_mm);
  add_operator(kernels, {"_addmm_activation", "_addmm_activation.out"}, &compute<Operation::addmm_activation>);
});

}  // namespace
}  // namespace matmul_impl
}  // namespace backplane::portable
