// backend/operators/swiglu.cpp: the device's kernels of an operator of our own and of its gradient. ops.py defines them; the float dtypes.
#include <backplane/host/elementwise.h>
#include <backplane/host/vector_math.h>
#include <backplane/structured.h>

namespace {

using at::Tensor;
using backplane::vector_sigmoid;

// The halves of the last dimension: views.
Tensor gate_of(const Tensor& x) { return x.narrow(-1, 0, x.size(-1) / 2); }
Tensor value_of(const Tensor& x) { return x.narrow(-1, x.size(-1) / 2, x.size(-1) / 2); }
bool has_halves(const Tensor& x) { return x.dim() > 0 && x.size(-1) % 2 == 0; }

// How to walk the elements of an output and of its inputs, whatever their strides.
at::TensorIterator walk(const Tensor& out, std::initializer_list<Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.add_owned_output(out);
  for (const Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build();
}

struct Swiglu : backplane::HostKernel {
  using Takes = backplane::Floats;
  static bool takes(const Tensor& x) { return has_halves(x); }  // the reference has the error for the rest

  // elementwise() queues the function and returns at once: it runs when the stream gets there. A vendor launches its own kernel here, in a
  // backplane::NativeLaunch, without the base HostKernel.
  static Tensor run(const Tensor& x) {
    const Tensor gate = gate_of(x);
    Tensor out = backplane::empty(gate.sizes(), x.scalar_type(), x.device().index());
    auto iter = walk(out, {gate, value_of(x)});
    Takes::dispatch_compute(x.scalar_type(), [&](auto zero) {
      using T = decltype(zero);  // float or double; the half types are computed in float
      backplane::elementwise<T, T, T>(iter, [](T gate, T value) { return gate * vector_sigmoid(gate) * value; });
    });
    return out;
  }
};

struct SwigluBackward : backplane::HostKernel {
  using Takes = backplane::Floats;
  static bool takes(const Tensor& grad, const Tensor& x) { return has_halves(x) && grad.scalar_type() == x.scalar_type(); }

  static Tensor run(const Tensor& grad, const Tensor& x) {
    const Tensor gate = gate_of(x);
    Tensor out = backplane::empty(x.sizes(), x.scalar_type(), x.device().index());
    auto of_gate = walk(gate_of(out), {grad, gate, value_of(x)});
    auto of_value = walk(value_of(out), {grad, gate});
    Takes::dispatch_compute(x.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      backplane::elementwise<T, T, T, T>(of_gate, [](T grad, T gate, T value) {
        const T s = vector_sigmoid(gate);
        return grad * value * s * (1 + gate * (1 - s));
      });
      backplane::elementwise<T, T, T>(of_value, [](T grad, T gate) { return grad * gate * vector_sigmoid(gate); });
    });
    return out;
  }
};

}  // namespace

BACKPLANE_KERNELS({{ cookiecutter.package_name }}, m) {
  m.python_module(".ops");  // of this package: it is imported with it
  backplane::function<Swiglu>(m, "swiglu");
  backplane::function<SwigluBackward>(m, "swiglu_backward");
}
