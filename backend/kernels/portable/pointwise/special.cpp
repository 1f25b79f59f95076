// kernels/portable/pointwise/special.cpp: the functions of torch.special, by dialect/special_compute.bpc.
#include "kernels/portable/pointwise/pointwise.h"

namespace backplane::portable {
namespace special_impl {
namespace {

// polygamma(n, x)
int derivative(const CallOptions& call) { return call.number < 0 ? -1 : call.number < 2 ? static_cast<int>(call.number) : 2; }

}  // namespace
}  // namespace special_impl

static const PointwiseTable special_functions = PointwiseTable::special({
    {"lgamma", Kind::to_float, kFloats, {"m_lgamma(x)"}},
    {"digamma", Kind::to_float, kFloats, {"m_digamma(x)"}},
    {"polygamma",
     Kind::to_float,
     kFloats,
     {"m_digamma(x)", "m_trigamma(x)", "m_polygamma(s0, x)"},
     HostNumbers::exact,
     &special_impl::derivative},
    {"special_zeta", Kind::to_float, kWide, {"m_zeta(x, y)"}},
    {"igamma", Kind::promote, kFloats, {"m_igamma(x, y)"}},
    {"igammac", Kind::promote, kFloats, {"m_igammac(x, y)"}},

    {"sinc", Kind::to_float, kFloats, {"m_sinc(x)"}},
    {"special_entr", Kind::to_float, kFloats, {"m_entr(x)"}},
    {"special_xlog1py", Kind::to_float, kFloats, {"m_xlog1py(x, y)"}},
    {"erfinv", Kind::to_float, kFloats, {"m_erfinv(x)"}},
    {"special_erfcx", Kind::to_float, kWide, {"m_erfcx(x)"}},
    {"special_ndtri", Kind::to_float, kWide, {"m_ndtri(x)"}},
    {"special_log_ndtr", Kind::to_float, kWide, {"m_log_ndtr(x)"}},

    {"i0", Kind::to_float, kFloats, {"m_i0(x)"}},
    {"special_i0e", Kind::to_float, kFloats, {"m_i0e(x)"}},
    {"special_i1", Kind::to_float, kFloats, {"m_i1(x)"}},
    {"special_i1e", Kind::to_float, kFloats, {"m_i1e(x)"}},
    {"special_modified_bessel_i0", Kind::to_float, kWide, {"m_i0(x)"}},
    {"special_modified_bessel_i1", Kind::to_float, kWide, {"m_i1(x)"}},
    {"special_modified_bessel_k0", Kind::to_float, kWide, {"m_bessel_k0(x)"}},
    {"special_modified_bessel_k1", Kind::to_float, kWide, {"m_bessel_k1(x)"}},
    {"special_scaled_modified_bessel_k0", Kind::to_float, kWide, {"m_scaled_bessel_k0(x)"}},
    {"special_scaled_modified_bessel_k1", Kind::to_float, kWide, {"m_scaled_bessel_k1(x)"}},
    {"special_bessel_j0", Kind::to_float, kWide, {"m_bessel_j0(x)"}},
    {"special_bessel_j1", Kind::to_float, kWide, {"m_bessel_j1(x)"}},
    {"special_bessel_y0", Kind::to_float, kWide, {"m_bessel_y0(x)"}},
    {"special_bessel_y1", Kind::to_float, kWide, {"m_bessel_y1(x)"}},
    {"special_spherical_bessel_j0", Kind::to_float, kWide, {"m_spherical_j0(x)"}},
    {"special_airy_ai", Kind::to_float, kWide, {"m_airy_ai(x)"}},

    {"special_chebyshev_polynomial_t", Kind::to_float, kWide, {"m_chebyshev_t(x, y)"}},
    {"special_chebyshev_polynomial_u", Kind::to_float, kWide, {"m_chebyshev_u(x, y)"}},
    {"special_chebyshev_polynomial_v", Kind::to_float, kWide, {"m_chebyshev_v(x, y)"}},
    {"special_chebyshev_polynomial_w", Kind::to_float, kWide, {"m_chebyshev_w(x, y)"}},
    {"special_shifted_chebyshev_polynomial_t", Kind::to_float, kWide, {"m_chebyshev_t((C)2 * x - (C)1, y)"}},
    {"special_shifted_chebyshev_polynomial_u", Kind::to_float, kWide, {"m_chebyshev_u((C)2 * x - (C)1, y)"}},
    {"special_shifted_chebyshev_polynomial_v", Kind::to_float, kWide, {"m_chebyshev_v((C)2 * x - (C)1, y)"}},
    {"special_shifted_chebyshev_polynomial_w", Kind::to_float, kWide, {"m_chebyshev_w((C)2 * x - (C)1, y)"}},
    {"special_hermite_polynomial_h", Kind::to_float, kWide, {"m_hermite_h(x, y)"}},
    {"special_hermite_polynomial_he", Kind::to_float, kWide, {"m_hermite_he(x, y)"}},
    {"special_laguerre_polynomial_l", Kind::to_float, kWide, {"m_laguerre_l(x, y)"}},
    {"special_legendre_polynomial_p", Kind::to_float, kWide, {"m_legendre_p(x, y)"}},
});

}  // namespace backplane::portable
