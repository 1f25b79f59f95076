// kernels/host/compare.cpp: comparisons, where, and logic of booleans. Complex dtypes go to the fallback.
#include <ATen/ops/bitwise_and_meta.h>
#include <ATen/ops/bitwise_not_meta.h>
#include <ATen/ops/bitwise_or_meta.h>
#include <ATen/ops/bitwise_xor_meta.h>
#include <ATen/ops/eq_meta.h>
#include <ATen/ops/ge_meta.h>
#include <ATen/ops/gt_meta.h>
#include <ATen/ops/le_meta.h>
#include <ATen/ops/lt_meta.h>
#include <ATen/ops/ne_meta.h>
#include <backplane/host/elementwise.h>
#include <backplane/structured.h>

namespace {

using at::Scalar;
using at::Tensor;
using at::TensorIteratorBase;
using backplane::elementwise;
using backplane::NumbersAndBool;

// Serves eq.Tensor and eq.Scalar alike: ATen has made the scalar an operand.
template <typename Function>
struct Compare : backplane::HostKernel {
  using Takes = NumbersAndBool;
  template <typename Other>
  static void run(TensorIteratorBase& iter, const Tensor&, const Other&, const Tensor&) {
    Takes::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<bool, T, T>(iter, Function());
    });
  }
};

constexpr auto equal = [](auto a, auto b) { return a == b; };
constexpr auto not_equal = [](auto a, auto b) { return a != b; };
constexpr auto less = [](auto a, auto b) { return a < b; };
constexpr auto less_equal = [](auto a, auto b) { return a <= b; };
constexpr auto greater = [](auto a, auto b) { return a > b; };
constexpr auto greater_equal = [](auto a, auto b) { return a >= b; };

using IntegersAndBool = backplane::Dtypes<int64_t, int32_t, int16_t, int8_t, uint8_t, bool>;

template <typename Function>
struct Bitwise : backplane::HostKernel {
  using Takes = IntegersAndBool;
  static void run(TensorIteratorBase& iter, const Tensor&, const Tensor&, const Tensor&) {
    elementwise<int64_t, int64_t, int64_t>(iter, Function());
  }
};

constexpr auto bit_and = [](int64_t a, int64_t b) { return a & b; };
constexpr auto bit_or = [](int64_t a, int64_t b) { return a | b; };
constexpr auto bit_xor = [](int64_t a, int64_t b) { return a ^ b; };

struct BitwiseNot : backplane::HostKernel {
  using Takes = IntegersAndBool;
  static void run(TensorIteratorBase& iter, const Tensor& self, const Tensor&) {
    if (self.scalar_type() == c10::kBool) {
      elementwise<bool, bool>(iter, [](bool x) { return !x; });
    } else {
      elementwise<int64_t, int64_t>(iter, [](int64_t x) { return ~x; });
    }
  }
};

// logical_not and logical_not_ lead here.
struct LogicalNotOut : backplane::HostKernel {
  using Takes = NumbersAndBool;
  static bool takes(const Tensor&, const Tensor& out) { return NumbersAndBool::has(out.scalar_type()); }
  static Tensor& run(const Tensor& self, Tensor& out) {
    const auto iter = at::TensorIteratorConfig().check_all_same_dtype(false).add_output(out).add_const_input(self).build();
    Takes::dispatch_compute(self.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<bool, T>(iter, [](T x) { return x == 0; });
    });
    return out;
  }
};

// Both tensors are promoted to one dtype. where(condition, x, 2.0) leads here too; a scalar that torch leaves on the host goes to the
// fallback.
struct Where : backplane::HostKernel {
  static bool takes(const Tensor& condition, const Tensor& self, const Tensor& other) {
    return condition.scalar_type() == c10::kBool && NumbersAndBool::has(self.scalar_type()) && NumbersAndBool::has(other.scalar_type());
  }
  static Tensor run(const Tensor& condition, const Tensor& self, const Tensor& other) {
    Tensor result;
    const auto iter = at::TensorIteratorConfig()
                          .check_all_same_dtype(false)
                          .promote_inputs_to_common_dtype(true)  // a bool changes nothing there
                          .add_output(result)
                          .add_const_input(condition)
                          .add_const_input(self)
                          .add_const_input(other)
                          .build();
    NumbersAndBool::dispatch_compute(iter.common_dtype(), [&](auto zero) {
      using T = decltype(zero);
      elementwise<T, T, T, T>(iter, [](T c, T a, T b) { return c != 0 ? a : b; });  // of one width, so that it is vectorised
    });
    return iter.output();
  }
};

template <typename Tensors, typename Scalars, typename Function>
void comparison(backplane::Kernels& m, const backplane::Forms& tensors, const backplane::Forms& scalars, Function) {
  backplane::structured<Tensors, Compare<Function>>(m, tensors);
  backplane::structured<Scalars, Compare<Function>>(m, scalars);
}

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  using namespace at::meta;
  using backplane::structured;
  comparison<structured_eq_Tensor, structured_eq_Scalar>(m, {"eq.Tensor", "eq.Tensor_out", "eq_.Tensor"},
                                                         {"eq.Scalar", "eq.Scalar_out", "eq_.Scalar"}, equal);
  comparison<structured_ne_Tensor, structured_ne_Scalar>(m, {"ne.Tensor", "ne.Tensor_out", "ne_.Tensor"},
                                                         {"ne.Scalar", "ne.Scalar_out", "ne_.Scalar"}, not_equal);
  comparison<structured_lt_Tensor, structured_lt_Scalar>(m, {"lt.Tensor", "lt.Tensor_out", "lt_.Tensor"},
                                                         {"lt.Scalar", "lt.Scalar_out", "lt_.Scalar"}, less);
  comparison<structured_le_Tensor, structured_le_Scalar>(m, {"le.Tensor", "le.Tensor_out", "le_.Tensor"},
                                                         {"le.Scalar", "le.Scalar_out", "le_.Scalar"}, less_equal);
  comparison<structured_gt_Tensor, structured_gt_Scalar>(m, {"gt.Tensor", "gt.Tensor_out", "gt_.Tensor"},
                                                         {"gt.Scalar", "gt.Scalar_out", "gt_.Scalar"}, greater);
  comparison<structured_ge_Tensor, structured_ge_Scalar>(m, {"ge.Tensor", "ge.Tensor_out", "ge_.Tensor"},
                                                         {"ge.Scalar", "ge.Scalar_out", "ge_.Scalar"}, greater_equal);
  structured<structured_bitwise_and_Tensor, Bitwise<decltype(bit_and)>>(
      m, {"bitwise_and.Tensor", "bitwise_and.Tensor_out", "bitwise_and_.Tensor"});
  structured<structured_bitwise_or_Tensor, Bitwise<decltype(bit_or)>>(m,
                                                                      {"bitwise_or.Tensor", "bitwise_or.Tensor_out", "bitwise_or_.Tensor"});
  structured<structured_bitwise_xor_Tensor, Bitwise<decltype(bit_xor)>>(
      m, {"bitwise_xor.Tensor", "bitwise_xor.Tensor_out", "bitwise_xor_.Tensor"});
  structured<structured_bitwise_not, BitwiseNot>(m, {"bitwise_not", "bitwise_not.out", "bitwise_not_"});
  backplane::function<LogicalNotOut>(m, "logical_not.out");
  backplane::function<Where>(m, "where.self");
}
