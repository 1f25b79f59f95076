// tests/device/cpp/vendor_ops.cpp: a vendor's second library, with all that operators in C++ can have.
#include <ATen/TensorOperators.h>
#include <backplane/autograd.h>
#include <backplane/host/elementwise.h>
#include <backplane/structured.h>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors2 = std::tuple<Tensor, Tensor>;

// x * x + y: the device's kernel, and the CPU's in ATen's operators.
struct SquareAdd : backplane::HostKernel {
  using Takes = backplane::Floats;
  static bool takes(const Tensor& x, const Tensor& y) { return x.sizes() == y.sizes(); }
  static Tensor run(const Tensor& x, const Tensor& y) {
    Tensor out = backplane::empty(x.sizes(), x.scalar_type(), x.device().index());
    auto iter = at::TensorIterator::borrowing_binary_op(out, x, y);
    Takes::dispatch_compute(x.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      backplane::elementwise<T, T, T>(iter, [](T a, T b) { return a * a + b; });
    });
    return out;
  }
};

Tensor square_add_reference(const Tensor& x, const Tensor& y) { return x * x + y; }

Tensors2 square_add_backward(const Tensor& grad, const Tensor& x) { return {grad * x * 2, grad.clone()}; }

// exp(x) * scale, whose gradient needs its own result, and an argument that is no tensor.
Tensor scaled_exp(const Tensor& x, double scale) { return x.exp() * scale; }
Tensor scaled_exp_backward(const Tensor& grad, const Tensor& result) { return grad * result; }

// Two results and an input that may be absent; the gradient of one of the inputs alone.
Tensors2 sum_and_product(const Tensor& x, const std::optional<Tensor>& y, const Tensor& index) {
  const Tensor other = y && y->defined() ? *y : x;
  return {x + other + index, x * index};
}
Tensor sum_and_product_backward(const Tensor& grad_sum, const Tensor& grad_product, const Tensor& index) {
  return grad_sum + grad_product * index;
}

// References to the caller's tensors, which must come back from the fallback too: that takes what is no floating-point number.
using References2 = std::tuple<Tensor&, Tensor&>;
References2 twice_and_square_out(const Tensor& x, Tensor& twice, Tensor& square) { return {twice.copy_(x + x), square.copy_(x * x)}; }
struct TwiceAndSquare {
  using Takes = backplane::Floats;
  static References2 run(const Tensor& x, Tensor& twice, Tensor& square) { return twice_and_square_out(x, twice, square); }
};
Tensor& twice_(Tensor& x, const Tensor& y) { return x.copy_(x + y); }
struct TwiceInPlace {
  using Takes = backplane::Floats;
  static Tensor& run(Tensor& x, const Tensor& y) { return twice_(x, y); }
};

// By torch's own class: computes below autograd by the operator's kernels.
struct Cube : torch::autograd::Function<Cube> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    const backplane::BelowAutograd guard;
    return backplane::call<Tensor(const Tensor&)>("bpvendor::cube", x);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const Tensor x = context->get_saved_variables()[0];
    return {grads[0] * x * x * 3};
  }
};
Tensor cube(const Tensor& x) { return x * x * x; }

// Forward is the identity; the gradient is halved. One returns its input, the other an alias of it.
struct HalveInput : torch::autograd::Function<HalveInput> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 0.5}; }
};
struct HalveAlias : torch::autograd::Function<HalveAlias> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x.view_as(x); }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 0.5}; }
};
Tensor halve_input(const Tensor& x) { return HalveInput::apply(x); }
Tensor halve_alias(const Tensor& x) { return HalveAlias::apply(x); }
Tensor alias(const Tensor& x) { return x.view_as(x); }

}  // namespace

BACKPLANE_LIBRARY(bpvendor, m) {
  m.python_module("vendor_ops_fakes");
  m.def("square_add(Tensor x, Tensor y) -> Tensor", {at::Tag::pt2_compliant_tag})
      .reference(&square_add_reference)
      .backward("square_add_backward")
      .autocast(backplane::Cast::lower_precision);
  m.def("square_add_backward(Tensor grad, Tensor x) -> (Tensor, Tensor)").kernel(&square_add_backward).reference(&square_add_backward);
  m.def("scaled_exp(Tensor x, float scale) -> Tensor")
      .kernel(&scaled_exp)
      .reference(&scaled_exp)
      .backward("scaled_exp_backward")
      .autocast(backplane::Cast::float32);
  m.def("scaled_exp_backward(Tensor grad, Tensor result) -> Tensor").kernel(&scaled_exp_backward).reference(&scaled_exp_backward);
  m.def("sum_and_product(Tensor x, Tensor? y, Tensor index) -> (Tensor sum, Tensor product)")
      .kernel(&sum_and_product)
      .reference(&sum_and_product)
      .backward("sum_and_product_backward")
      .autocast(backplane::Cast::promote);
  m.def("sum_and_product_backward(Tensor grad_sum, Tensor grad_product, Tensor index) -> (Tensor grad_x)")
      .impl("CompositeExplicitAutograd", &sum_and_product_backward);
  m.def("twice_and_square.out(Tensor x, *, Tensor(a!) twice, Tensor(b!) square) -> (Tensor(a!), Tensor(b!))")
      .reference(&twice_and_square_out);
  m.def("twice_(Tensor(a!) x, Tensor y) -> Tensor(a!)").reference(&twice_);
  m.def("cube(Tensor x) -> Tensor").kernel(&cube).reference(&cube).autograd<Cube>();
}

BACKPLANE_KERNELS(bpvendor, m) {
  backplane::function<SquareAdd>(m, "square_add");
  backplane::function<TwiceAndSquare>(m, "twice_and_square.out");
  backplane::function<TwiceInPlace>(m, "twice_");
}

BACKPLANE_LIBRARY(bpvendor, m) {
  m.def("halve_input(Tensor(a) x) -> Tensor(a)").kernel(&alias);
  m.def("halve_alias(Tensor(a) x) -> Tensor(a)").kernel(&alias);
  m.def("names_no_module(Tensor x) -> Tensor").kernel(&cube);
}

BACKPLANE_IMPL(bpvendor, AutogradPrivateUse1, m) {
  m.impl("halve_input", &halve_input);
  m.impl("halve_alias", &halve_alias);
}
