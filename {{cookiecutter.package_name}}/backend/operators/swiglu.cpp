// backend/operators/swiglu.cpp: the device's kernels of an operator of our own and of its gradient. ops.py defines them; the float dtypes.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <backplane/structured.h>

namespace {

using at::Tensor;

bool has_halves(const Tensor& x) { return x.dim() > 0 && x.size(-1) % 2 == 0; }

// The halves of the last dimension, in the dtype to compute in: float for the half types.
Tensor half_of(const Tensor& x, int64_t i) {
  return x.narrow(-1, i * (x.size(-1) / 2), x.size(-1) / 2).to(at::toOpMathType(x.scalar_type()));
}

struct Swiglu {
  using Takes = backplane::Floats;
  static bool takes(const Tensor& x) { return has_halves(x); }  // the reference has the error for the rest

  // Made of operators that the device has or that fall back, each by itself: it runs on any driver. A vendor launches one kernel of its own
  // here, in a backplane::NativeLaunch (the SDK's docs/kernels.md).
  static Tensor run(const Tensor& x) {
    const Tensor gate = half_of(x, 0);
    return (gate * gate.sigmoid() * half_of(x, 1)).to(x.scalar_type()).contiguous();
  }
};

struct SwigluBackward {
  using Takes = backplane::Floats;
  static bool takes(const Tensor& grad, const Tensor& x) { return has_halves(x) && grad.scalar_type() == x.scalar_type(); }

  static Tensor run(const Tensor& grad, const Tensor& x) {
    const Tensor gate = half_of(x, 0);
    const Tensor s = gate.sigmoid();
    return at::cat({grad * half_of(x, 1) * s * (1 + gate * (1 - s)), grad * gate * s}, -1).to(x.scalar_type()).contiguous();
  }
};

}  // namespace

BACKPLANE_KERNELS({{ cookiecutter.package_name }}, m) {
  m.python_module(".ops");  // of this package: it is imported with it
  backplane::function<Swiglu>(m, "swiglu");
  backplane::function<SwigluBackward>(m, "swiglu_backward");
}
