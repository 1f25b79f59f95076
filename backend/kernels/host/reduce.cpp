// kernels/host/reduce.cpp: reductions over dimensions. sum and mean add floats in blocks and the blocks in double, the half types in
// float; integers are exact. Complex dtypes, and tensors of more than 12 dimensions, go to the fallback.
#include <ATen/core/Tensor.h>
#include <ATen/ops/all_meta.h>
#include <ATen/ops/amax_meta.h>
#include <ATen/ops/amin_meta.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/sum_meta.h>
#include <backplane/host/reduce.h>
#include <backplane/structured.h>

#include <limits>
#include <type_traits>

namespace {

using at::Tensor;
using backplane::NumbersAndBool;
using Meta = at::impl::MetaBase;

template <typename T>
struct SumOf {
  using Element = T;
  using Accumulator = std::conditional_t<std::is_same_v<T, float>, double, T>;
  static constexpr Accumulator kIdentity = 0;
  template <typename A>
  static A combine(A a, A b) {
    return a + b;
  }
  static T finish(Accumulator sum, int64_t) { return static_cast<T>(sum); }
};

template <typename T>
struct MeanOf : SumOf<T> {
  using Accumulator = typename SumOf<T>::Accumulator;
  static T finish(Accumulator sum, int64_t count) { return static_cast<T>(sum / static_cast<Accumulator>(count)); }
};

template <typename T>
struct LargestOf {
  using Element = T;
  using Accumulator = T;
  static constexpr T kIdentity = std::is_integral_v<T> ? std::numeric_limits<T>::min() : -std::numeric_limits<T>::infinity();
  static T combine(T a, T b) { return (a > b) | (a != a) ? a : b; }  // a NaN wins
  static T finish(T result, int64_t) { return result; }
};

template <typename T>
struct SmallestOf : LargestOf<T> {
  static constexpr T kIdentity = std::is_integral_v<T> ? std::numeric_limits<T>::max() : std::numeric_limits<T>::infinity();
  static T combine(T a, T b) { return (a < b) | (a != a) ? a : b; }
};

template <typename T>
struct AnyOf : LargestOf<T> {
  static constexpr T kIdentity = 0;
  static T combine(T a, T b) { return a != 0 ? a : b; }
  static T finish(T result, int64_t) { return result != 0; }
};

template <typename T>
struct AllOf : AnyOf<T> {
  static constexpr T kIdentity = 1;
  static T combine(T a, T b) { return a == 0 ? a : b; }
};

template <template <typename> typename Op>
void reduce(c10::ScalarType dtype, const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, const Tensor& out) {
  NumbersAndBool::dispatch_compute(dtype, [&](auto zero) { backplane::reduce<Op<decltype(zero)>>(self, dims, keepdim, out); });
}

// Computed in the dtype of the result, which differs from the tensor's by `dtype=`, or for integers.
struct Sum : backplane::HostKernel {
  static bool takes(const Meta& meta, const Tensor& self, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>) {
    return backplane::is_reducible(self) && NumbersAndBool::has(result(meta).scalar_type());
  }
  static const Tensor& result(const Meta& meta) { return const_cast<Meta&>(meta).maybe_get_output(); }

  static void run(Meta&, const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType>, const Tensor& out) {
    reduce<SumOf>(out.scalar_type(), self, dims, keepdim, out);
  }
};

struct Mean : backplane::HostKernel {
  static bool takes(const Meta& meta, const Tensor& self, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>) {
    return backplane::is_reducible(self) && backplane::Floats::has(Sum::result(meta).scalar_type());
  }
  static void run(Meta&, const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType>, const Tensor& out) {
    backplane::Floats::dispatch_compute(out.scalar_type(),
                                        [&](auto zero) { backplane::reduce<MeanOf<decltype(zero)>>(self, dims, keepdim, out); });
  }
};

template <template <typename> typename Op>
struct Extremum : backplane::HostKernel {
  static bool takes(const Meta&, const Tensor& self, at::IntArrayRef, bool) { return backplane::is_reducible(self); }
  static void run(Meta&, const Tensor& self, at::IntArrayRef dims, bool keepdim, const Tensor& out) {
    reduce<Op>(self.scalar_type(), self, dims, keepdim, out);
  }
};

// any and all, over one dimension or over everything. Without dimensions there is nothing to reduce: dim() of a scalar is 0.
template <template <typename> typename Op>
struct Truth : backplane::HostKernel {
  static bool takes(const Meta&, const Tensor& self, int64_t, bool) { return backplane::is_reducible(self); }
  static bool takes(const Meta&, const Tensor& self) { return backplane::is_reducible(self); }
  static void run(Meta&, const Tensor& self, int64_t dim, bool keepdim, const Tensor& out) {
    reduce<Op>(self.scalar_type(), self, at::IntArrayRef(dim), keepdim, out);
  }
  static void run(Meta&, const Tensor& self, const Tensor& out) { reduce<Op>(self.scalar_type(), self, std::nullopt, false, out); }
};

struct Greater {
  template <typename T>
  bool operator()(T a, T b) const {
    return a > b || (a != a && b == b);
  }
};

struct Less {
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b || (a != a && b == b);
  }
};

template <typename Better>
struct Arg : backplane::HostKernel {
  using Takes = backplane::Numbers;
  static bool takes(const Meta&, const Tensor& self, std::optional<int64_t>, bool) { return backplane::is_reducible(self); }
  static void run(Meta&, const Tensor& self, std::optional<int64_t> dim, bool keepdim, const Tensor& out) {
    const at::OptionalIntArrayRef dims = dim ? at::OptionalIntArrayRef(*dim) : at::OptionalIntArrayRef();
    Takes::dispatch_compute(self.scalar_type(),
                            [&](auto zero) { backplane::arg_reduce<decltype(zero), Better>(self, dims, keepdim, out); });
  }
};

}  // namespace

// sum() and mean() without dimensions lead here too; max.dim, which returns indices as well, is another operator.
BACKPLANE_KERNELS(aten, m) {
  using namespace at::meta;
  using backplane::structured;
  structured<structured_sum_dim_IntList, Sum>(m, {"sum.dim_IntList", "sum.IntList_out"});
  structured<structured_mean_dim, Mean>(m, {"mean.dim", "mean.out"});
  structured<structured_amax, Extremum<LargestOf>>(m, {"amax", "amax.out"});
  structured<structured_amin, Extremum<SmallestOf>>(m, {"amin", "amin.out"});
  structured<structured_any, Truth<AnyOf>>(m, {"any", "any.all_out"});
  structured<structured_any_dim, Truth<AnyOf>>(m, {"any.dim", "any.out"});
  structured<structured_all, Truth<AllOf>>(m, {"all", "all.all_out"});
  structured<structured_all_dim, Truth<AllOf>>(m, {"all.dim", "all.out"});
  structured<structured_argmax, Arg<Greater>>(m, {"argmax", "argmax.out"});
  structured<structured_argmin, Arg<Less>>(m, {"argmin", "argmin.out"});
}
