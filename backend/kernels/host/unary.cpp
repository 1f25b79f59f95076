// kernels/host/unary.cpp: elementwise functions of one tensor: the float dtypes, and for abs and neg the integers; the half types are
// computed in float. Complex dtypes go to the fallback. sin and cos are left to the CPU: what large arguments need does not vectorise.
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/log_meta.h>
#include <ATen/ops/neg_meta.h>
#include <ATen/ops/reciprocal_meta.h>
#include <ATen/ops/rsqrt_meta.h>
#include <ATen/ops/sqrt_meta.h>
#include <backplane/host/elementwise.h>
#include <backplane/host/vector_math.h>
#include <backplane/structured.h>

#include <cmath>

namespace {

using backplane::Floats;
using backplane::Numbers;

// A structured kernel out of a function of one element. Integers arrive as the float type that ATen promotes them to, where it does.
template <typename Function, typename List = Floats>
struct Unary : backplane::HostKernel {
  using Takes = List;
  static void run(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      backplane::elementwise<T, T>(iter, Function());
    });
  }
};

constexpr auto exp_of = [](auto x) { return backplane::vector_exp(x); };
constexpr auto log_of = [](auto x) { return backplane::vector_log(x); };
constexpr auto neg_of = [](auto x) { return -x; };
constexpr auto reciprocal_of = [](auto x) { return 1 / x; };
constexpr auto rsqrt_of = [](auto x) { return 1 / std::sqrt(x); };
constexpr auto sqrt_of = [](auto x) { return std::sqrt(x); };

// abs has no meta class. abs and abs_ lead here.
struct AbsOut : backplane::HostKernel {
  using Takes = Numbers;
  static bool takes(const at::Tensor& self, const at::Tensor& out) { return out.scalar_type() == self.scalar_type(); }
  static at::Tensor& run(const at::Tensor& self, at::Tensor& out) {
    const auto iter = at::TensorIterator::unary_op(out, self);
    Takes::dispatch_compute(self.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      backplane::elementwise<T, T>(iter, [](T x) { return std::abs(x); });
    });
    return out;
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  using backplane::structured;
  namespace meta = at::meta;
  structured<meta::structured_exp, Unary<decltype(exp_of)>>(m, {"exp", "exp.out", "exp_"});
  structured<meta::structured_log, Unary<decltype(log_of)>>(m, {"log", "log.out", "log_"});
  structured<meta::structured_neg, Unary<decltype(neg_of), Numbers>>(m, {"neg", "neg.out", "neg_"});
  structured<meta::structured_reciprocal, Unary<decltype(reciprocal_of)>>(m, {"reciprocal", "reciprocal.out", "reciprocal_"});
  structured<meta::structured_rsqrt, Unary<decltype(rsqrt_of)>>(m, {"rsqrt", "rsqrt.out", "rsqrt_"});
  structured<meta::structured_sqrt, Unary<decltype(sqrt_of)>>(m, {"sqrt", "sqrt.out", "sqrt_"});
  backplane::function<AbsOut>(m, "abs.out");
}
