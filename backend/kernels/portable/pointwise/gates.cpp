// kernels/portable/pointwise/gates.cpp: activations and gradients that are more than one expression: log_sigmoid and the gradient of prelu
// have two results, glu joins two halves of a tensor, rrelu is random.
#include <backplane/structured.h>
#include <c10/core/WrapDimMinimal.h>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace gates_impl {
namespace {

// The destination: a new tensor, or the out= one. Undefined: left to the CPU.
at::Tensor place(const Call& call, const at::Tensor& like, size_t k, size_t outputs, std::initializer_list<at::Tensor> inputs) {
  const at::Tensor* const given = call.given(k, outputs);
  if (given == nullptr) return empty(like.sizes(), like.scalar_type(), like.device().index());
  if (!can_become(*given, like.sizes(), like.scalar_type(), inputs)) return {};
  if (given->sizes() != like.sizes()) given->resize_(like.sizes());
  return *given;
}

// --- log_sigmoid ---

// self -> the result, and e^-|x|, which the CPU's gradient reads
bool log_sigmoid(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_float(self)) return false;
  const at::Tensor out = place(call, self, 0, 2, {self}), buffer = place(call, self, 1, 2, {self, out});
  if (!out.defined() || !buffer.defined()) return false;
  Walk walk("log_sigmoid_forward", self.sizes(), self.device().index());
  walk.write(out).write(buffer).read(self).compute_in(self.scalar_type());
  if (!walk.run("const C x = LOAD2(i2); const C e = m_exp(-m_fabs(x)); STORE1(i1, e); STORE0(i0, m_min(x, (C)0) - m_log1p(e));")) {
    return false;
  }
  call.give(out);
  call.give(buffer);
  return true;
}

// grad, self, buffer
bool log_sigmoid_backward(Call& call) {
  const at::Tensor &grad = call.tensor(0), &self = call.tensor(1);
  if (!is_float(self) || !is_like(grad, self) || grad.sizes() != self.sizes()) return false;
  const at::Tensor result = apply("log_sigmoid_backward", self.scalar_type(), {grad, self}, "x * m_sigmoid(-y)", {}, self.scalar_type());
  return result.defined() && give(call, result, {grad, self, call.tensor(2)});
}

// --- glu ---

struct Halves {
  at::Tensor first, second;
};

bool halves_of(const at::Tensor& self, int64_t dim, Halves& halves) {
  if (!is_float(self) || self.dim() == 0 || dim < -self.dim() || dim >= self.dim()) return false;
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const int64_t half = self.size(dim) / 2;
  if (half * 2 != self.size(dim)) return false;
  halves = {self.narrow(dim, 0, half), self.narrow(dim, half, half)};
  return true;
}

bool glu(Call& call) {
  const at::Tensor& self = call.tensor(0);
  Halves halves;
  if (!halves_of(self, call[1].toInt(), halves)) return false;
  const at::Tensor result = apply("glu", self.scalar_type(), {halves.first, halves.second}, "x * m_sigmoid(y)", {}, self.scalar_type());
  return result.defined() && give(call, result, {self});
}

// grad, self, dim
bool glu_backward(Call& call) {
  const at::Tensor &grad = call.tensor(0), &self = call.tensor(1);
  Halves in, out;
  if (!halves_of(self, call[2].toInt(), in) || !is_like(grad, self) || grad.sizes() != in.first.sizes()) return false;
  const at::Tensor result = empty(self.sizes(), self.scalar_type(), self.device().index());
  halves_of(result, call[2].toInt(), out);
  const c10::ScalarType dtype = self.scalar_type();
  if (!apply("glu_backward", out.first, {grad, in.second}, "x * m_sigmoid(y)", {}, dtype) ||
      !apply("glu_backward", out.second, {grad, in.first, in.second}, "((C)1 - m_sigmoid(z)) * m_sigmoid(z) * x * y", {}, dtype)) {
    return false;
  }
  return give(call, result, {grad, self});
}

// glu, x, dx, dim: the change of glu for a change of x
bool glu_jvp(Call& call) {
  const at::Tensor &glu = call.tensor(0), &x = call.tensor(1), &change = call.tensor(2);
  Halves in, by;
  const int64_t dim = call[3].toInt();
  if (!halves_of(x, dim, in) || c10::isReducedFloatingType(x.scalar_type()) || !is_like(change, x) || change.sizes() != x.sizes() ||
      !halves_of(change, dim, by) || !is_like(glu, x) || glu.sizes() != in.first.sizes()) {
    return false;
  }
  const at::Tensor result = apply("glu_jvp", x.scalar_type(), {glu, in.second, by.first, by.second},
                                  "m_sigmoid(y) * z + x * (w - m_sigmoid(y) * w)", {}, x.scalar_type());
  return result.defined() && give(call, result, {});
}

// --- prelu, rrelu ---

// grad, self, weight -> the gradients of self and of weight, which has self's shape or is broadcast to it
bool prelu_backward(Call& call) {
  const at::Tensor &grad = call.tensor(0), &self = call.tensor(1), &weight = call.tensor(2);
  if (!is_float(self) || !is_like(grad, self) || !is_like(weight, self)) return false;
  const c10::ScalarType dtype = self.scalar_type();
  const at::Tensor of_self = apply("_prelu_kernel_backward", dtype, {grad, self, weight}, "y > (C)0 ? x : z * x", {}, dtype);
  if (!of_self.defined()) return false;
  const at::Tensor of_weight = apply("_prelu_kernel_backward", dtype, {grad, self, weight}, "y > (C)0 ? (C)0 : y * x", {}, dtype);
  if (!of_weight.defined()) return false;
  call.give(of_self);
  call.give(of_weight);
  return true;
}

// self, noise, lower, upper, training, generator: a random slope for each number that is not positive, kept in noise
bool rrelu(Call& call) {
  const at::Tensor &self = call.tensor(0), &noise = call.tensor(1);
  if (!is_float(self) || call[2].isComplexDouble() || call[3].isComplexDouble()) return false;
  const double lower = call[2].toScalar().toDouble(), upper = call[3].toScalar().toDouble();
  const c10::ScalarType dtype = self.scalar_type();
  at::Tensor result;
  if (const at::Tensor* const given = call.given()) {
    if (!given->is_same(self) && !can_become(*given, self.sizes(), dtype, {self, noise})) return false;
    if (given->sizes() != self.sizes()) given->resize_(self.sizes());
    result = *given;
  }
  const auto compute = [&](at::ArrayRef<at::Tensor> inputs, Literal text, std::initializer_list<double> numbers) {
    if (result.defined()) return apply("rrelu_with_noise", result, inputs, text, numbers, dtype);
    result = apply("rrelu_with_noise", dtype, inputs, text, numbers, dtype);
    return result.defined();
  };
  if (!call[4].toBool()) {
    if (!compute({self}, "x > (C)0 ? x : x * s0", {(lower + upper) / 2})) return false;
  } else {
    if (!is_like(noise, self) || noise.sizes() != self.sizes() || noise.is_alias_of(self) || !noise.is_non_overlapping_and_dense() ||
        !(lower <= upper)) {
      return false;
    }
    noise.uniform_(lower, upper, call.generator(5));
    if (!apply("rrelu_with_noise", noise, {self, noise}, "x <= (C)0 ? y : (C)1", {}, dtype)) return false;
    if (!compute({self, noise}, "x * y", {})) return false;
  }
  call.give(result);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"log_sigmoid_forward", "log_sigmoid_forward.output"}, &log_sigmoid);
  add_operator(kernels, {"log_sigmoid_backward", "log_sigmoid_backward.grad_input"}, &log_sigmoid_backward);
  add_operator(kernels, {"glu", "glu.out"}, &glu);
  add_operator(kernels, {"glu_backward", "glu_backward.grad_input"}, &glu_backward);
  add_operator(kernels, {"glu_jvp"}, &glu_jvp);
  add_operator(kernels, {"_prelu_kernel_backward"}, &prelu_backward);
  add_operator(kernels, {"rrelu_with_noise", "rrelu_with_noise_", "rrelu_with_noise.out"}, &rrelu);
});

}  // namespace
}  // namespace gates_impl
}  // namespace backplane::portable
