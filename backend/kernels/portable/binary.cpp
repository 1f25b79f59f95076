// kernels/portable/binary.cpp: operators of two tensors, with broadcasting and type promotion. A number (the 2 in `x * 2`) is a tensor on
// the host. Integers are not divided here: for a divisor of zero torch raises an error, which a kernel that runs later cannot.
#include "kernels/portable/pointwise.h"

namespace backplane::portable {
namespace binary_impl {
namespace {

// Of the half types the CPU rounds the quotient before it drops the fraction; so does the second expression.
int division_mode(const CallOptions& call) { return call.text.empty() ? 0 : call.text == "trunc" ? 1 : call.text == "floor" ? 2 : -1; }

// The exponents that have a shorter way.
int power(const CallOptions& call) { return call.number == 2 ? 1 : call.number == 3 ? 2 : call.number == 0.5 ? 3 : 0; }

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
     kFloats,
     {"x / y", "m_trunc(K_ROUND(x / y))", "m_floor_divide(x, y)"},
     HostNumbers::exact,
     &binary_impl::division_mode},
    {"remainder.Tensor", Kind::promote, kFloats, {"m_remainder(x, y)"}},
    {"fmod.Tensor", Kind::promote, kFloats, {"m_fmod(x, y)"}},
    {"pow.Tensor_Tensor", Kind::promote, kNumbers, {"m_power(x, y)"}},
    {"pow.Tensor_Scalar",
     Kind::numbers,
     kFloats,
     {"m_power(x, s0)", "x * x", "x * x * x", "m_sqrt(x)"},
     HostNumbers::rounded,
     &binary_impl::power},
    {"pow.Scalar", Kind::numbers, kNumbers, {"m_power(s0, x)"}},
    {"atan2", Kind::to_float, kFloats, {"m_atan2(x, y)"}},
    {"hypot", Kind::promote, kFloats, {"m_hypot(x, y)"}},
    {"copysign.Tensor", Kind::to_float, kFloats, {"m_copysign(x, y)"}},
    {"logaddexp", Kind::promote, kFloats, {"m_logaddexp(x, y)"}},
    {"xlogy.Tensor", Kind::to_float, kFloats, {"y != y ? y : x == (C)0 ? (C)0 : x * m_log(y)"}},
    {"heaviside", Kind::promote, kAll, {"x == (C)0 ? y : (C)(x > (C)0)"}},

    {"native_dropout_backward", Kind::promote, kFloats, {"x * (y * s0)"}},

    {"maximum", Kind::promote, kAll, {"m_max(x, y)"}},
    {"minimum", Kind::promote, kAll, {"m_min(x, y)"}},
    {"fmax", Kind::promote, kAll, {"m_fmax(x, y)"}},
    {"fmin", Kind::promote, kAll, {"m_fmin(x, y)"}},

    {"eq.Tensor", Kind::compare, kAll, {"x == y"}},
    {"ne.Tensor", Kind::compare, kAll, {"x != y"}},
    {"lt.Tensor", Kind::compare, kAll, {"x < y"}},
    {"le.Tensor", Kind::compare, kAll, {"x <= y"}},
    {"gt.Tensor", Kind::compare, kAll, {"x > y"}},
    {"ge.Tensor", Kind::compare, kAll, {"x >= y"}},
    {"eq.Scalar", Kind::compare_numbers, kAll, {"x == s0"}},
    {"ne.Scalar", Kind::compare_numbers, kAll, {"x != s0"}},
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
});

}  // namespace backplane::portable
