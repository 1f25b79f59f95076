// kernels/portable/pointwise/activation.cpp: activations and their gradients. In a gradient, x is the incoming gradient, and y the
// activation's input or result.
#include "kernels/portable/pointwise/pointwise.h"

namespace backplane::portable {
namespace activation_impl {
namespace {

int gelu_form(const CallOptions& call) { return call.text == "none" ? 0 : call.text == "tanh" ? 1 : -1; }

int not_negative(const CallOptions& call) { return call.number >= 0 ? 0 : -1; }
int with_epsilon(const CallOptions& call) { return (call.given & 2) != 0 ? 1 : 0; }
int backward_with_epsilon(const CallOptions& call) { return (call.given & 4) != 0 ? 1 : 0; }

}  // namespace
}  // namespace activation_impl

static const PointwiseTable activations({
    {"relu", Kind::promote, kNumbers, {"m_max(x, (C)0)"}},
    {"leaky_relu", Kind::promote, kFloats, {"x > (C)0 ? x : x * s0"}},
    {"_prelu_kernel", Kind::alike, kFloats, {"x > (C)0 ? x : x * y"}},
    {"gelu", Kind::promote, kFloats, {"x * m_phi(x)", "m_gelu_tanh(x)"}, HostNumbers::rounded, &activation_impl::gelu_form},
    {"silu", Kind::promote, kFloats, {"x / ((C)1 + m_exp(-x))"}},
    {"mish", Kind::promote, kFloats, {"x * m_tanh(m_log1p(m_exp(x)))"}},
    {"elu", Kind::promote, kFloats, {"x <= (C)0 ? m_expm1(x * s2) * (s0 * s1) : x * s1"}},
    {"hardtanh", Kind::promote, kNumbers, {"m_clamp(x, s0, s1)"}},
    {"hardswish", Kind::promote, kFloats, {"x * m_clamp(x + (C)3, (C)0, (C)6) / (C)6"}},
    {"hardsigmoid", Kind::promote, kFloats, {"m_clamp(x + (C)3, (C)0, (C)6) / (C)6"}},
    {"softplus", Kind::promote, kFloats, {"m_softplus(x, s0, s1)"}},
    {"threshold", Kind::promote, kNumbers, {"x <= s0 ? s1 : x"}},
    {"softshrink",
     Kind::promote,
     kFloats,
     {"x > s0 ? x - s0 : x < -s0 ? x + s0 : x * (C)0"},
     HostNumbers::rounded,
     &activation_impl::not_negative},
    {"hardshrink", Kind::promote, kFloats, {"x >= -s0 && x <= s0 ? (C)0 : x"}},
    {"logit",
     Kind::to_float,
     kFloats,
     {"m_log(x / ((C)1 - x))", "m_log(m_clamp(x, s0, (C)1 - s0) / ((C)1 - m_clamp(x, s0, (C)1 - s0)))"},
     HostNumbers::rounded,
     &activation_impl::with_epsilon},

    {"sigmoid_backward", Kind::alike, kFloats, {"x * ((C)1 - y) * y"}},
    {"tanh_backward", Kind::alike, kFloats, {"x * ((C)1 - y * y)"}},
    {"threshold_backward", Kind::alike, kNumbers | kSelfFirst, {"x <= s0 ? (C)0 : y"}},
    {"leaky_relu_backward", Kind::alike, kFloats | kSelfFirst, {"x > (C)0 ? y : y * s0"}},
    {"gelu_backward",
     Kind::alike,
     kFloats,
     {"x * m_gelu_slope(y)", "x * m_gelu_tanh_slope(y)"},
     HostNumbers::rounded,
     &activation_impl::gelu_form},
    {"silu_backward", Kind::alike, kFloats, {"x * m_sigmoid(y) * ((C)1 + y * ((C)1 - m_sigmoid(y)))"}},
    {"mish_backward", Kind::alike, kFloats, {"x * m_mish_slope(y)"}},
    {"elu_backward",
     Kind::alike,
     kFloats,
     {"y > (C)0 ? x * s1 : s3 != (C)0 ? x * s2 * (y + s0 * s1) : x * s2 * (s0 * s1) * m_exp(y * s2)"}},
    {"hardtanh_backward", Kind::alike, kFloats, {"y <= s0 || y >= s1 ? (C)0 : x"}},
    {"hardswish_backward", Kind::alike, kFloats, {"y <= (C)-3 ? (C)0 : y < (C)3 ? x * (y / (C)3 + LIT(0.5)) : x"}},
    {"hardsigmoid_backward", Kind::alike, kFloats, {"y > (C)-3 && y < (C)3 ? x / (C)6 : (C)0"}},
    {"softplus_backward", Kind::alike, kFloats, {"y * s0 > s1 ? x : x * m_sigmoid(y * s0)"}},
    {"softshrink_backward", Kind::alike, kFloats, {"y >= -s0 && y <= s0 ? (C)0 : x"}},
    {"hardshrink_backward", Kind::alike, kFloats, {"y >= -s0 && y <= s0 ? (C)0 : x"}},
    {"logit_backward",
     Kind::alike,
     kFloats,
     {"y < (C)0 || y > (C)1 ? m_nan : x / (y * ((C)1 - y))", "y < s0 || y > (C)1 - s0 ? (C)0 : x / (y * ((C)1 - y))"},
     HostNumbers::rounded,
     &activation_impl::backward_with_epsilon},
});

}  // namespace backplane::portable
