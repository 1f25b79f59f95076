// drivers/spirv/float64.h: the dialect's functions of f64 in plain arithmetic: exponentials, logarithms, sines.
//
// They stand behind any prelude whose language has f64 and no library of it; float64_words() in spirv.h is the whole. They need bp_rint64,
// bp_fma64 and the like, to the last bit. Within 6 ulp of the C library's, powers within 2. Polynomials are series, or interpolate at
// Chebyshev's points; made for this file.
//
// Sources: [D] Dekker, A floating-point technique for extending the available precision, 1971. [PH] Payne, Hanek, Radian reduction for
// trigonometric functions, 1983.
#pragma once

namespace backplane::driver::spirv {

constexpr const char* kFloat64Text = R"float64(
#if BP_HAS_F64
/* ---- exponentials ---- */

/* 2^n for n in [-1022, 1023]; p 2^n for n in [-2200, 2200]. */
BP_FN f64 bp_two_to64_(i32 n) { return bp_as_f64((u64)(n + 1023) << 52); }
BP_FN f64 bp_scale64_(f64 p, i32 n) {
  const i32 third = n / 3;
  return p * bp_two_to64_(third) * bp_two_to64_(third) * bp_two_to64_(n - 2 * third);
}

/* e^r - 1 for |r| <= ln 2 / 2: Taylor's series. */
BP_FN f64 bp_exp_reduced64_(f64 r) {
  const f64 p = 0.5 + r * (0.16666666666666666 + r * (0.041666666666666664 + r * (0.008333333333333333 + r * (
      0.001388888888888889 + r * (0.0001984126984126984 + r * (2.48015873015873e-05 + r * (2.7557319223985893e-06 + r * (
      2.755731922398589e-07 + r * (2.505210838544172e-08 + r * (2.08767569878681e-09 + r * (1.6059043836821613e-10)))))))))));
  return r * r * p + r;
}

/* e^(x + low) for finite x in [-760, 760]. */
BP_FN f64 bp_exp_sum64_(f64 x, f64 low) {
  const f64 n = bp_rint64(x * 1.4426950408889634);
  const f64 r = ((x - n * 0.6931471804855391) - n * 7.440617110012397e-11) + low;
  return bp_scale64_(1.0 + bp_exp_reduced64_(r), (i32)n);
}
BP_FN f64 bp_exp64(f64 x) {
  if (x != x) return x;
  if (x > 710.0) return (f64)BP_INFINITY;
  if (x < -746.0) return 0.0;
  return bp_exp_sum64_(x, 0.0);
}
BP_FN f64 bp_exp2_64(f64 x) {
  if (x != x) return x;
  if (x > 1024.0) return (f64)BP_INFINITY;
  if (x < -1080.0) return 0.0;
  const f64 n = bp_rint64(x);
  return bp_scale64_(1.0 + bp_exp_reduced64_((x - n) * 0.6931471805599453), (i32)n);
}
BP_FN f64 bp_expm1_64(f64 x) {
  if (x != x || x == 0.0) return x;
  if (x > 710.0) return (f64)BP_INFINITY;
  if (x < -40.0) return -1.0;
  const f64 n = bp_rint64(x * 1.4426950408889634);
  const f64 p = bp_exp_reduced64_((x - n * 0.6931471804855391) - n * 7.440617110012397e-11);
  if (n == 0.0) return p;
  if (n > 60.0) return bp_scale64_(1.0 + p, (i32)n);
  const f64 scale = bp_two_to64_((i32)n);
  return scale * p + (scale - 1.0);
}

/* ---- logarithms ---- */

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)); x is finite and above 0. */
typedef struct {
  f64 m, e;
} bp_mantissa64_;
BP_FN bp_mantissa64_ bp_mantissa_of64_(f64 x) {
  const i32 tiny = x < 2.2250738585072014e-308;
  const u64 bits = bp_as_u64(tiny ? x * 18014398509481984.0 : x) - 0x3fe6a09e667f3bcdu;
  bp_mantissa64_ out;
  out.e = (f64)((i64)bits >> 52) - (tiny ? 54.0 : 0.0);
  out.m = bp_as_f64((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
  return out;
}
/* log m, for m = 1 + f in [sqrt(1/2), sqrt(2)). */
BP_FN f64 bp_log_near64_(f64 f) {
  const f64 s = f / (2.0 + f);
  const f64 z = s * s;
  const f64 p = 0.6666666666666666 + z * (0.4 + z * (0.2857142857142857 + z * (0.2222222222222222 + z * (0.18181818181818182 + z * (
      0.15384615384615385 + z * (0.13333333333333333 + z * (0.11764705882352941 + z * (0.10526315789473684 + z * (
      0.09523809523809523 + z * (0.08695652173913043))))))))));
  return s * z * p + 2.0 * s;
}
/* What a logarithm of x is where x is not finite and above 0. */
BP_FN f64 bp_log_ends64_(f64 x) { return x == 0.0 ? -(f64)BP_INFINITY : x > 0.0 || x != x ? x : (f64)BP_NAN; }
BP_FN f64 bp_log64(f64 x) {
  if (!(x > 0.0 && x < (f64)BP_INFINITY)) return bp_log_ends64_(x);
  const bp_mantissa64_ parts = bp_mantissa_of64_(x);
  return parts.e * 0.6931471804855391 + (bp_log_near64_(parts.m - 1.0) + parts.e * 7.440617110012397e-11);
}
BP_FN f64 bp_log2_64(f64 x) {
  if (!(x > 0.0 && x < (f64)BP_INFINITY)) return bp_log_ends64_(x);
  const bp_mantissa64_ parts = bp_mantissa_of64_(x);
  return parts.e + bp_log_near64_(parts.m - 1.0) * 1.4426950408889634;
}
BP_FN f64 bp_log10_64(f64 x) {
  if (!(x > 0.0 && x < (f64)BP_INFINITY)) return bp_log_ends64_(x);
  const bp_mantissa64_ parts = bp_mantissa_of64_(x);
  return parts.e * 0.30102999560767785 + (bp_log_near64_(parts.m - 1.0) * 0.4342944819032518 + parts.e * 5.630334806675098e-11);
}
BP_FN f64 bp_log1p64(f64 x) {
  const f64 u = 1.0 + x;
  if (u == 1.0) return x;
  if (!(u > 0.0 && u < (f64)BP_INFINITY)) return bp_log_ends64_(u);
  return bp_log64(u) * (x / (u - 1.0));
}

/* ---- sines ---- */

/* An angle less a multiple of pi / 2: quadrant, and the rest as a sum. */
typedef struct {
  f64 high, low;
  i32 quadrant;
} bp_angle64_;

/* 64 bits of 2 / pi, of 1280 behind its point. */
BP_FN u64 bp_two_over_pi_(i32 word) {
  switch (word) {
    case 0: return 0xa2f9836e4e441529u;
    case 1: return 0xfc2757d1f534ddc0u;
    case 2: return 0xdb6295993c439041u;
    case 3: return 0xfe5163abdebbc561u;
    case 4: return 0xb7246e3a424dd2e0u;
    case 5: return 0x06492eea09d1921cu;
    case 6: return 0xfe1deb1cb129a73eu;
    case 7: return 0xe88235f52ebb4484u;
    case 8: return 0xe99c7026b45f7e41u;
    case 9: return 0x3991d639835339f4u;
    case 10: return 0x9c845f8bbdf9283bu;
    case 11: return 0x1ff897ffde05980fu;
    case 12: return 0xef2f118b5a0a6d1fu;
    case 13: return 0x6d367ecf27cb09b7u;
    case 14: return 0x4f463f669e5fea2du;
    case 15: return 0x7527bac7ebe5f17bu;
    case 16: return 0x3d0739f78a5292eau;
    case 17: return 0x6bfb5fb11f8d5d08u;
    case 18: return 0x56033046fc7b6babu;
    case 19: return 0xf0cfbc209af4361du;
    default: return 0u;
  }
}
BP_FN u64 bp_two_over_pi_from_(i32 bit) {
  const i32 word = bit >> 6;
  const i32 shift = bit & 63;
  const u64 first = bp_two_over_pi_(word);
  return shift == 0 ? first : first << shift | bp_two_over_pi_(word + 1) >> (64 - shift);
}
BP_FN u64 bp_product_high_(u64 a, u64 b) {
  const u64 a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const u64 middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + (((middle & 0xffffffffu) + a0 * b1) >> 32);
}
/* Of a large |x|: the product with 192 bits of 2 / pi, from the one on that is not a multiple of 4. [PH] */
BP_FN bp_angle64_ bp_large_angle64_(f64 x) {
  const u64 bits = bp_as_u64(x);
  const i32 e = (i32)(bits >> 52 & 0x7ffu) - 1075;
  const u64 m = (bits & 0x000fffffffffffffu) | 0x0010000000000000u;
  const i32 from = e - 2;
  const u64 w2 = bp_two_over_pi_from_(from), w1 = bp_two_over_pi_from_(from + 64), w0 = bp_two_over_pi_from_(from + 128);
  const u64 carry = bp_product_high_(m, w0);
  const u64 p1 = m * w1 + carry;
  const u64 p2 = m * w2 + bp_product_high_(m, w1) + (p1 < carry ? 1u : 0u);
  bp_angle64_ out;
  out.quadrant = (i32)(p2 >> 62);
  u64 high = p2 << 2 | p1 >> 62;
  u64 low = p1 << 2 | (m * w0) >> 62;
  const i32 is_back = (high >> 63) != 0u;
  if (is_back) {
    out.quadrant += 1;
    high = ~high + (low == 0u ? 1u : 0u);
    low = 0u - low;
  }
  const f64 first = (f64)(high >> 11) * 1.1102230246251565e-16;
  const f64 second = (f64)((high & 0x7ffu) << 53 | low >> 11) * 6.018531076210112e-36;
  const f64 sign = is_back != (x < 0.0) ? -1.0 : 1.0;
  const f64 r = first * 1.5707963267948966;
  const f64 rest = bp_fma64(first, 1.5707963267948966, -r) + (first * 6.123233995736766e-17 + second * 1.5707963267948966);
  out.high = sign * (r + rest);
  out.low = sign * (rest - ((r + rest) - r));
  if (x < 0.0) out.quadrant = -out.quadrant;
  return out;
}
BP_FN bp_angle64_ bp_angle_of64_(f64 x) {
  if (!(bp_fabs64(x) < 500000.0)) return bp_large_angle64_(x);
  const f64 n = bp_rint64(x * 0.6366197723675814);
  const f64 first = x - n * 1.5707963267341256;
  const f64 second = n * 6.077100506303966e-11;
  const f64 r = first - second;
  const f64 rest = n * 2.0222662487959506e-21 - ((first - r) - second);
  bp_angle64_ out;
  out.high = r - rest;
  out.low = (r - out.high) - rest;
  out.quadrant = (i32)n;
  return out;
}
BP_FN f64 bp_sin_near64_(f64 x, f64 low) {
  const f64 z = x * x;
  const f64 p = -0.16666666666666666 + z * (0.008333333333333333 + z * (-0.0001984126984126984 + z * (2.7557319223985893e-06 + z * (
      -2.505210838544172e-08 + z * (1.6059043836821613e-10 + z * (-7.647163731819816e-13 + z * (2.8114572543455206e-15 + z * (
      -8.22063524662433e-18))))))));
  return x + (x * z * p + low * (1.0 - 0.5 * z));
}
BP_FN f64 bp_cos_near64_(f64 x, f64 low) {
  const f64 z = x * x;
  const f64 p = 0.041666666666666664 + z * (-0.001388888888888889 + z * (2.48015873015873e-05 + z * (-2.755731922398589e-07 + z * (
      2.08767569878681e-09 + z * (-1.1470745597729725e-11 + z * (4.779477332387385e-14 + z * (-1.5619206968586225e-16)))))));
  const f64 half_z = 0.5 * z;
  const f64 first = 1.0 - half_z;
  return first + (((1.0 - first) - half_z) + (z * z * p - x * low));
}
BP_FN f64 bp_sine64_(f64 x, i32 shift) {
  if (!(bp_fabs64(x) < (f64)BP_INFINITY)) return (f64)BP_NAN;
  const bp_angle64_ angle = bp_angle_of64_(x);
  const i32 quadrant = angle.quadrant + shift;
  const f64 out = (quadrant & 1) != 0 ? bp_cos_near64_(angle.high, angle.low) : bp_sin_near64_(angle.high, angle.low);
  return (quadrant & 2) != 0 ? -out : out;
}
BP_FN f64 bp_sin64(f64 x) { return x == 0.0 ? x : bp_sine64_(x, 0); }
BP_FN f64 bp_cos64(f64 x) { return bp_sine64_(x, 1); }
BP_FN f64 bp_tan64(f64 x) {
  if (x == 0.0) return x;
  if (!(bp_fabs64(x) < (f64)BP_INFINITY)) return (f64)BP_NAN;
  const bp_angle64_ angle = bp_angle_of64_(x);
  const f64 s = bp_sin_near64_(angle.high, angle.low), c = bp_cos_near64_(angle.high, angle.low);
  return (angle.quadrant & 1) != 0 ? -(c / s) : s / c;
}
#endif
)float64";

}  // namespace backplane::driver::spirv
