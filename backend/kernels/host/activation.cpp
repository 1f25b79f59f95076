// kernels/host/activation.cpp: activation functions and what their gradients call, for the float dtypes; the half types are computed in
// float. relu takes integers too. Complex dtypes go to the fallback.
#include <ATen/ops/gelu_backward_meta.h>
#include <ATen/ops/gelu_meta.h>
#include <ATen/ops/sigmoid_backward_meta.h>
#include <ATen/ops/sigmoid_meta.h>
#include <ATen/ops/silu_backward_meta.h>
#include <ATen/ops/silu_meta.h>
#include <ATen/ops/tanh_backward_meta.h>
#include <ATen/ops/tanh_meta.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <backplane/host/elementwise.h>
#include <backplane/host/vector_math.h>
#include <backplane/structured.h>

namespace {

using at::Tensor;
using at::TensorIteratorBase;
using backplane::elementwise;
using backplane::Floats;
using backplane::vector_erf;
using backplane::vector_exp;
using backplane::vector_sigmoid;
using backplane::vector_tanh;

struct Sigmoid : backplane::HostKernel {
  using Takes = Floats;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T>(iter, [](T x) { return vector_sigmoid(x); });
    });
  }
};

struct SigmoidBackward : backplane::HostKernel {
  using Takes = Floats;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T, T>(iter, [](T grad, T y) { return grad * (1 - y) * y; });
    });
  }
};

struct Tanh : backplane::HostKernel {
  using Takes = Floats;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T>(iter, [](T x) { return vector_tanh(x); });
    });
  }
};

struct TanhBackward : backplane::HostKernel {
  using Takes = Floats;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T, T>(iter, [](T grad, T y) { return grad * (1 - y * y); });
    });
  }
};

struct Silu : backplane::HostKernel {
  using Takes = Floats;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T>(iter, [](T x) { return x / (1 + vector_exp(-x)); });
    });
  }
};

struct SiluBackward : backplane::HostKernel {
  using Takes = Floats;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T, T>(iter, [](T grad, T x) {
        const T s = vector_sigmoid(x);
        return grad * s * (1 + x * (1 - s));
      });
    });
  }
};

constexpr double kRootHalf = 0.70710678118654752440;       // sqrt(1/2)
constexpr double kRootTwoOverPi = 0.79788456080286535588;  // sqrt(2/pi)
constexpr double kCubic = 0.044715;                        // of the tanh approximation

// For another mode the CPU has the error.
bool is_gelu_mode(c10::string_view approximate) { return approximate == "none" || approximate == "tanh"; }

struct Gelu : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const TensorIteratorBase&, const Tensor&, c10::string_view approximate) { return is_gelu_mode(approximate); }
  static void run(TensorIteratorBase& iter, const Tensor&, c10::string_view approximate, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      if (approximate == "tanh") {
        elementwise<T, T>(iter, [](T x) { return T(0.5) * x * (1 + vector_tanh(T(kRootTwoOverPi) * (x + T(kCubic) * x * x * x))); });
      } else {
        elementwise<T, T>(iter, [](T x) { return T(0.5) * x * (1 + vector_erf(x * T(kRootHalf))); });
      }
    });
  }
};

struct GeluBackward : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const TensorIteratorBase&, const Tensor&, const Tensor&, c10::string_view approximate) {
    return is_gelu_mode(approximate);
  }
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, c10::string_view approximate, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      if (approximate == "tanh") {
        elementwise<T, T, T>(iter, [](T grad, T x) {
          const T t = vector_tanh(T(kRootTwoOverPi) * (x + T(kCubic) * x * x * x));
          const T inner = T(kRootTwoOverPi) * (1 + 3 * T(kCubic) * x * x);
          return grad * T(0.5) * (1 + t + x * (1 - t * t) * inner);
        });
      } else {
        elementwise<T, T, T>(iter, [](T grad, T x) {
          const T distribution = T(0.5) * (1 + vector_erf(x * T(kRootHalf)));
          const T density = T(0.5 * kRootTwoOverPi) * vector_exp(T(-0.5) * x * x);
          return grad * (distribution + x * density);
        });
      }
    });
  }
};

struct ThresholdBackward : backplane::HostKernel {
  using Takes = backplane::Numbers;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, const at::Scalar& threshold, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T, T>(iter, [threshold = threshold.to<T>()](T x, T grad) { return x <= threshold ? T(0) : grad; });  // in ATen's order
    });
  }
};

// relu has no meta class: a function that makes its result.
struct Relu : backplane::HostKernel {
  using Takes = backplane::Numbers;
  static Tensor run(const Tensor& self) {
    Tensor result;
    auto iter = at::TensorIterator::unary_op(result, self);
    compute(iter);
    return iter.output();
  }
  static void compute(TensorIteratorBase& iter) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T>(iter, [](T x) { return x < 0 ? T(0) : x; });  // NaN stays
    });
  }
};

struct ReluInplace : backplane::HostKernel {
  using Takes = Relu::Takes;
  static Tensor& run(Tensor& self) {
    auto iter = at::TensorIterator::unary_op(self, self);
    Relu::compute(iter);
    return self;
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  using backplane::structured;
  namespace meta = at::meta;
  structured<meta::structured_sigmoid, Sigmoid>(m, {"sigmoid", "sigmoid.out", "sigmoid_"});
  structured<meta::structured_sigmoid_backward, SigmoidBackward>(m, {"sigmoid_backward", "sigmoid_backward.grad_input"});
  structured<meta::structured_tanh, Tanh>(m, {"tanh", "tanh.out", "tanh_"});
  structured<meta::structured_tanh_backward, TanhBackward>(m, {"tanh_backward", "tanh_backward.grad_input"});
  structured<meta::structured_silu, Silu>(m, {"silu", "silu.out", "silu_"});
  structured<meta::structured_silu_backward, SiluBackward>(m, {"silu_backward", "silu_backward.grad_input"});
  structured<meta::structured_gelu, Gelu>(m, {"gelu", "gelu.out", "gelu_"});
  structured<meta::structured_gelu_backward, GeluBackward>(m, {"gelu_backward", "gelu_backward.grad_input"});
  structured<meta::structured_threshold_backward, ThresholdBackward>(m, {"threshold_backward", "threshold_backward.grad_input"});
  backplane::function<Relu>(m, "relu");
  backplane::function<ReluInplace>(m, "relu_");
}
