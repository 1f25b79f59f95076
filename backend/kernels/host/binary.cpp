// kernels/host/binary.cpp: arithmetic of two tensors, with broadcasting, type promotion and scalars (x * 2 leads to mul.Tensor); add is
// in the template, as the example to start from. Complex dtypes go to the fallback, and so does integer division with a rounding mode: the
// CPU raises an error for a zero divisor, and a kernel that runs later could not.
#include <ATen/ops/div_meta.h>
#include <ATen/ops/maximum_meta.h>
#include <ATen/ops/minimum_meta.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/pow_meta.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/sub_ops.h>
#include <backplane/host/elementwise.h>
#include <backplane/structured.h>

#include <cmath>

namespace {

using at::Scalar;
using at::Tensor;
using at::TensorIteratorBase;
using backplane::elementwise;
using backplane::Scalars;

struct Sub : backplane::HostKernel {
  using Takes = backplane::Numbers;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, const Scalar& alpha, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T, T>(iter, [alpha = alpha.to<T>()](T a, T b) { return a - alpha * b; });
    });
  }
};

// 2 - x: no meta class.
struct Rsub : backplane::HostKernel {
  using Takes = backplane::Numbers;
  static Tensor run(const Tensor& self, const Tensor& other, const Scalar& alpha) { return at::_ops::sub_Tensor::call(other, self, alpha); }
};

template <typename Function, typename List, Scalars scalars = Scalars::rounded>
struct Binary : backplane::HostKernel {
  using Takes = List;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T, T>(iter, Function(), scalars);
    });
  }
};

constexpr auto product = [](auto a, auto b) { return a * b; };
constexpr auto quotient = [](auto a, auto b) { return a / b; };
constexpr auto larger = [](auto a, auto b) { return (a > b) | (a != a) ? a : b; };  // a NaN wins
constexpr auto smaller = [](auto a, auto b) { return (a < b) | (a != a) ? a : b; };

template <typename T>
T floor_quotient(T a, T b) {
  const T quotient = a / b;
  if (b == 0) return quotient;
  const T remainder = std::fmod(a, b);
  T whole = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) whole -= 1;
  if (whole == 0) return std::copysign(T(0), quotient);
  const T floor = std::floor(whole);
  return whole - floor > T(0.5) ? floor + 1 : floor;
}

// Not the half types: there the CPU rounds the quotient before it drops the fraction.
struct DivMode : backplane::HostKernel {
  using Takes = backplane::Dtypes<float, double>;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, std::optional<c10::string_view> mode, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      if (!mode) {
        elementwise<T, T, T>(iter, [](T a, T b) { return a / b; });
      } else if (*mode == "trunc") {
        elementwise<T, T, T>(iter, [](T a, T b) { return std::trunc(a / b); });
      } else {
        elementwise<T, T, T>(iter, [](T a, T b) { return floor_quotient(a, b); });
      }
    });
  }
};

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base != -1 ? 0 : exponent % 2 == 0 ? 1 : -1;
  uint64_t result = 1;  // wraps, as ATen's
  for (auto factor = static_cast<uint64_t>(base); exponent != 0; exponent >>= 1, factor *= factor) {
    if (exponent & 1) result *= factor;
  }
  return static_cast<int64_t>(result);
}
float power(float base, float exponent) { return std::pow(base, exponent); }
double power(double base, double exponent) { return std::pow(base, exponent); }

constexpr auto power_of = [](auto base, auto exponent) { return power(base, exponent); };

// A value of the half type, where that is computed in float.
template <typename T>
T rounded(const Scalar& number, c10::ScalarType dtype) {
  if (dtype == c10::kHalf) return static_cast<T>(number.to<c10::Half>());
  if (dtype == c10::kBFloat16) return static_cast<T>(number.to<c10::BFloat16>());
  return number.to<T>();
}

struct PowScalar : backplane::HostKernel {
  using Takes = backplane::Numbers;
  static void run(TensorIteratorBase& iter, const Tensor&, const Scalar& exponent, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      const T e = rounded<T>(exponent, iter.common_dtype());
      if (e == 2) {
        elementwise<T, T>(iter, [](T x) { return x * x; });
      } else if (e == 3) {
        elementwise<T, T>(iter, [](T x) { return x * x * x; });
      } else {
        elementwise<T, T>(iter, [e](T x) { return power(x, e); });
      }
    });
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  using backplane::structured;
  namespace meta = at::meta;
  using backplane::Numbers;
  using backplane::NumbersAndBool;
  structured<meta::structured_sub_Tensor, Sub>(m, {"sub.Tensor", "sub.out", "sub_.Tensor"});
  structured<meta::structured_mul_Tensor, Binary<decltype(product), NumbersAndBool, Scalars::exact>>(
      m, {"mul.Tensor", "mul.out", "mul_.Tensor"});
  structured<meta::structured_div_Tensor, Binary<decltype(quotient), backplane::Floats, Scalars::exact>>(
      m, {"div.Tensor", "div.out", "div_.Tensor"});
  structured<meta::structured_div_Tensor_mode, DivMode>(m, {"div.Tensor_mode", "div.out_mode", "div_.Tensor_mode"});
  structured<meta::structured_maximum, Binary<decltype(larger), NumbersAndBool>>(m, {"maximum", "maximum.out"});
  structured<meta::structured_minimum, Binary<decltype(smaller), NumbersAndBool>>(m, {"minimum", "minimum.out"});
  structured<meta::structured_pow_Tensor_Tensor, Binary<decltype(power_of), Numbers>>(
      m, {"pow.Tensor_Tensor", "pow.Tensor_Tensor_out", "pow_.Tensor"});
  structured<meta::structured_pow_Tensor_Scalar, PowScalar>(m, {"pow.Tensor_Scalar", "pow.Tensor_Scalar_out", "pow_.Scalar"});
  backplane::function<Rsub>(m, "rsub.Tensor");
}
