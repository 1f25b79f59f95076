// kernels/portable/pointwise/unary.cpp: operators of one tensor.
#include "kernels/portable/pointwise/pointwise.h"

namespace backplane::portable {
namespace unary_impl {
namespace {

// Decimals for which the product of tens is exact.
int few_decimals(const CallOptions& call) { return call.number >= -10 && call.number <= 10 ? 0 : -1; }

}  // namespace
}  // namespace unary_impl

static const PointwiseTable unary_operators({
    {"abs", Kind::promote, kNumbers, {"m_abs(x)"}, HostNumbers::rounded, nullptr, false, "x & 0x7fff"},
    {"neg", Kind::promote, kNumbers, {"-x"}, HostNumbers::rounded, nullptr, false, "x ^ 0x8000"},
    {"sign", Kind::promote, kAll, {"(C)(x > (C)0) - (C)(x < (C)0)"}},
    {"sgn", Kind::promote, kAll, {"(C)(x > (C)0) - (C)(x < (C)0)"}},
    {"bitwise_not", Kind::promote, kIntegers | kBool, {"m_bit_not(x)"}},
    {"logical_not", Kind::compare, kAll, {"x == (C)0"}},
    {"isposinf", Kind::compare, kFloats, {"x == m_infinity"}},
    {"isneginf", Kind::compare, kFloats, {"x == -m_infinity"}},
    {"isnan", Kind::compare, kStored, {"x != x"}},
    {"signbit", Kind::compare, kAll, {"m_signbit(x)"}},
    {"angle", Kind::to_float, kFloats, {"x < (C)0 ? LIT(3.14159265358979323846) : x == x ? (C)0 : x"}},

    {"ceil", Kind::promote, kNumbers, {"m_ceil(x)"}},
    {"floor", Kind::promote, kNumbers, {"m_floor(x)"}},
    {"round", Kind::promote, kNumbers, {"m_rint(x)"}},
    {"trunc", Kind::promote, kNumbers, {"m_trunc(x)"}},
    {"round.decimals", Kind::promote, kFloats, {"m_round_decimals(x, s0)"}, HostNumbers::exact, &unary_impl::few_decimals},
    {"frac", Kind::promote, kFloats, {"x - m_trunc(x)"}},

    {"sqrt", Kind::to_float, kFloats, {"m_sqrt(x)"}},
    {"rsqrt", Kind::to_float, kFloats, {"(C)1 / m_sqrt(x)"}},
    {"reciprocal", Kind::to_float, kFloats, {"(C)1 / x"}},
    {"exp", Kind::to_float, kFloats, {"m_exp(x)"}},
    {"exp2", Kind::to_float, kFloats, {"m_exp2(x)"}},
    {"expm1", Kind::to_float, kFloats, {"m_expm1(x)"}},
    {"log", Kind::to_float, kFloats, {"m_log(x)"}},
    {"log2", Kind::to_float, kFloats, {"m_log2(x)"}},
    {"log10", Kind::to_float, kFloats, {"m_log10(x)"}},
    {"log1p", Kind::to_float, kFloats, {"m_log1p(x)"}},
    {"sin", Kind::to_float, kFloats, {"m_sin(x)"}},
    {"cos", Kind::to_float, kFloats, {"m_cos(x)"}},
    {"tan", Kind::to_float, kFloats, {"m_tan(x)"}},
    {"asin", Kind::to_float, kFloats, {"m_asin(x)"}},
    {"acos", Kind::to_float, kFloats, {"m_acos(x)"}},
    {"atan", Kind::to_float, kFloats, {"m_atan(x)"}},
    {"sinh", Kind::to_float, kFloats, {"m_sinh(x)"}},
    {"cosh", Kind::to_float, kFloats, {"m_cosh(x)"}},
    {"tanh", Kind::to_float, kFloats, {"m_tanh(x)"}},
    {"asinh", Kind::to_float, kFloats, {"m_asinh(x)"}},
    {"acosh", Kind::to_float, kFloats, {"m_acosh(x)"}},
    {"atanh", Kind::to_float, kFloats, {"m_atanh(x)"}},
    {"erf", Kind::to_float, kFloats, {"m_erf(x)"}},
    {"erfc", Kind::to_float, kFloats, {"m_erfc(x)"}},
    {"sigmoid", Kind::to_float, kFloats, {"m_sigmoid(x)"}},
});

}  // namespace backplane::portable
