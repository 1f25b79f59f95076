// kernels/portable/pointwise/binary.cpp: operators of two tensors, with broadcasting and type promotion. A number (the 2 in `x * 2`) is a
// tensor on the host.
#include <algorithm>
#include <iterator>

#include "kernels/portable/pointwise/pointwise.h"

namespace backplane::portable {
namespace binary_impl {
namespace {

int division_mode(const CallOptions& call) { return call.text.empty() ? 0 : call.text == "trunc" ? 1 : call.text == "floor" ? 2 : -1; }

// The exponents with a faster expression, those of torch's CPU. A square's gradient raises to the first power. For integers torch raises an
// error if the exponent is negative, or does not fit in their dtype.
int power(const CallOptions& call) {
  if (call.integers && (call.number < 0 || call.number > 127)) return -1;
  static constexpr double exponents[] = {2, 3, 0.5, 1, 0, -1, -0.5, -2};
  const auto* const found = std::find(std::begin(exponents), std::end(exponents), call.number);
  return found == std::end(exponents) ? 0 : static_cast<int>(found - exponents) + 1;
}

}  // namespace
}  // namespace binary_impl

static const PointwiseTable binary_operators({
    {"add.Tensor", Kind::promote, kAll, {"x + s0 * y"}},
    {"sub.Tensor", Kind::promote, kNumbers | kWithoutBool, {"x - s0 * y"}},
    {"rsub.Tensor", Kind::promote, kNumbers | kWithoutBool, {"y - s0 * x"}},
    {"mul.Tensor", Kind::promote, kAll, {"x * y"}, HostNumbers::exact},
    {"div.Tensor", Kind::to_float, kFloats, {"x / y"}, HostNumbers::exact},
    {"div.Tensor_mode",
     Kind::promote,
     kFloats | kByNumber,
     {"x / y", "m_trunc_divide(x, y)", "m_floor_divide(x, y)"},
     HostNumbers::exact,
     &binary_impl::division_mode},
    {"floor_divide", Kind::promote, kFloats | kByNumber, {"m_floor_divide(x, y)"}, HostNumbers::exact},
    {"remainder.Tensor", Kind::promote, kFloats | kByNumber, {"m_remainder(x, y)"}},
    {"fmod.Tensor", Kind::promote, kFloats | kByNumber, {"m_fmod(x, y)"}},
    {"gcd", Kind::promote, kIntegers, {"m_gcd(x, y)"}},
    {"lcm", Kind::promote, kIntegers, {"m_lcm(x, y)"}},
    {"pow.Tensor_Tensor", Kind::promote, kNumbers, {"m_power(x, y)"}},
    {"pow.Tensor_Scalar",
     Kind::numbers,
     kNumbers,
     {"m_power(x, s0)", "x * x", "x * x * x", "m_sqrt(x)", "x", "(C)1", "(C)1 / x", "(C)1 / m_sqrt(x)", "(C)1 / (x * x)"},
     HostNumbers::rounded,
     &binary_impl::power},
    {"pow.Scalar", Kind::numbers, kNumbers, {"m_power(s0, x)"}},
    {"atan2", Kind::to_float, kFloats, {"m_atan2(x, y)"}},
    {"hypot", Kind::promote, kFloats, {"m_hypot(x, y)"}},
    {"copysign.Tensor", Kind::to_float, kFloats, {"m_copysign(x, y)"}, HostNumbers::rounded, nullptr, false, "(x & 0x7fff) | (y & 0x8000)"},
    {"logaddexp", Kind::promote, kFloats, {"m_logaddexp(x, y)"}},
    {"logaddexp2", Kind::promote, kFloats, {"m_logaddexp2(x, y)"}},
    {"nextafter", Kind::promote, kFloats, {"m_nextafter(x, y)"}},
    {"xlogy.Tensor", Kind::to_float, kFloats, {"y != y ? y : x == (C)0 ? (C)0 : x * m_log(y)"}},
    {"heaviside", Kind::alike, kAll, {"x == (C)0 ? y : (C)(x > (C)0)"}},

    {"native_dropout_backward", Kind::promote, kFloats, {"x * (y * s0)"}},

    {"maximum", Kind::promote, kAll, {"m_max(x, y)"}},
    {"minimum", Kind::promote, kAll, {"m_min(x, y)"}},
    {"fmax", Kind::promote, kAll, {"m_fmax(x, y)"}},
    {"fmin", Kind::promote, kAll, {"m_fmin(x, y)"}},

    {"eq.Tensor", Kind::compare, kStored, {"x == y"}},
    {"ne.Tensor", Kind::compare, kStored, {"x != y"}},
    {"lt.Tensor", Kind::compare, kAll, {"x < y"}},
    {"le.Tensor", Kind::compare, kAll, {"x <= y"}},
    {"gt.Tensor", Kind::compare, kAll, {"x > y"}},
    {"ge.Tensor", Kind::compare, kAll, {"x >= y"}},
    {"eq.Scalar", Kind::compare_numbers, kStored, {"x == s0"}},
    {"ne.Scalar", Kind::compare_numbers, kStored, {"x != s0"}},
    {"lt.Scalar", Kind::compare_numbers, kAll, {"x < s0"}},
    {"le.Scalar", Kind::compare_numbers, kAll, {"x <= s0"}},
    {"gt.Scalar", Kind::compare_numbers, kAll, {"x > s0"}},
    {"ge.Scalar", Kind::compare_numbers, kAll, {"x >= s0"}},
    {"logical_and", Kind::compare, kAll, {"x != (C)0 && y != (C)0"}},
    {"logical_or", Kind::compare, kAll, {"x != (C)0 || y != (C)0"}},
    {"logical_xor", Kind::compare, kAll, {"(x != (C)0) != (y != (C)0)"}},

    {"bitwise_and.Tensor", Kind::promote, kIntegers | kBool, {"x & y"}},
    {"bitwise_or.Tensor", Kind::promote, kIntegers | kBool, {"x | y"}},
    {"bitwise_xor.Tensor", Kind::promote, kIntegers | kBool, {"x ^ y"}},
    {"bitwise_left_shift.Tensor", Kind::promote, kIntegers, {"m_shift_left(x, y)"}},
    {"bitwise_right_shift.Tensor", Kind::promote, kIntegers, {"m_shift_right(x, y)"}},
    {"__lshift__.Tensor", Kind::promote, kIntegers, {"m_shift_left(x, y)"}},
    {"__rshift__.Tensor", Kind::promote, kIntegers, {"m_shift_right(x, y)"}},
    {"__lshift__.Scalar", Kind::numbers, kIntegers, {"m_shift_left(x, s0)"}},
    {"__rshift__.Scalar", Kind::numbers, kIntegers, {"m_shift_right(x, s0)"}},
});

}  // namespace backplane::portable
