// kernels/portable/pointwise/ternary.cpp: operators of three operands, some of which may be numbers or None.
#include "kernels/portable/pointwise/pointwise.h"

namespace backplane::portable {
namespace ternary_impl {
namespace {

// clamp(x, min, max): one bound may be None.
int bounds(const CallOptions& call) { return call.given == 7 ? 0 : call.given == 3 ? 1 : call.given == 5 ? 2 : -1; }

}  // namespace
}  // namespace ternary_impl

static const PointwiseTable ternary_operators({
    {"where.self", Kind::choose, kStored, {"x != (C)0 ? y : z"}},
    {"masked_fill_.Scalar", Kind::masked, kAll, {"y != (C)0 ? s0 : x"}},
    {"masked_fill_.Tensor", Kind::masked, kAll, {"y != (C)0 ? z : x"}},
    {"clamp", Kind::numbers, kNumbers, {"m_clamp(x, s0, s1)", "m_max(x, s0)", "m_min(x, s0)"}, HostNumbers::rounded, &ternary_impl::bounds},
    {"clamp.Tensor",
     Kind::promote,
     kNumbers,
     {"m_clamp(x, y, z)", "m_max(x, y)", "m_min(x, y)"},
     HostNumbers::rounded,
     &ternary_impl::bounds},
    {"clamp_min", Kind::numbers, kNumbers, {"m_max(x, s0)"}},
    {"clamp_max", Kind::numbers, kNumbers, {"m_min(x, s0)"}},
    {"clamp_min.Tensor", Kind::promote, kNumbers, {"m_max(x, y)"}},
    {"clamp_max.Tensor", Kind::promote, kNumbers, {"m_min(x, y)"}},
    {"lerp.Tensor", Kind::alike, kFloats, {"m_fabs(z) < LIT(0.5) ? x + z * (y - x) : y - (y - x) * ((C)1 - z)"}},
    {"lerp.Scalar", Kind::alike, kFloats, {"m_fabs(s0) < LIT(0.5) ? x + s0 * (y - x) : y - (y - x) * ((C)1 - s0)"}},
    {"addcmul", Kind::promote, kNumbers, {"x + s0 * y * z"}},
    {"addcdiv", Kind::promote, kFloats, {"x + s0 * y / z"}},
});

}  // namespace backplane::portable
