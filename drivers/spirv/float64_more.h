// drivers/spirv/float64_more.h: the rest of float64.h: inverse and hyperbolic functions, powers, error and gamma function.
#pragma once

namespace backplane::driver::spirv {

constexpr const char* kFloat64MoreText = R"float64(
#if BP_HAS_F64
/* ---- their inverses ---- */

/* Of x in [0, infinity]. */
BP_FN f64 bp_atan_above64_(f64 x) {
  const i32 is_large = x > 1.0;
  const f64 inside = is_large ? 1.0 / x : x;
  const i32 is_far = inside > 0.41421356237309503;
  const f64 t = is_far ? (inside - 1.0) / (inside + 1.0) : inside;
  const f64 z = t * t;
  const f64 p = -0.3333333333333333 + z * (0.2 + z * (-0.14285714285714285 + z * (0.1111111111111111 + z * (
      -0.09090909090909091 + z * (0.07692307692307693 + z * (-0.06666666666666667 + z * (0.058823529411764705 + z * (
      -0.05263157894736842 + z * (0.047619047619047616 + z * (-0.043478260869565216 + z * (0.04 + z * (-0.037037037037037035 + z * (
      0.034482758620689655 + z * (-0.03225806451612903 + z * (0.030303030303030304 + z * (-0.02857142857142857 + z * (
      0.02702702702702703 + z * (-0.02564102564102564 + z * (0.024390243902439025 + z * (-0.023255813953488372))))))))))))))))))));
  const f64 near_ = t + t * z * p;
  const f64 first = is_far ? 0.7853981633974483 + (near_ + 3.061616997868383e-17) : near_;
  return is_large ? 1.5707963267948966 - (first - 6.123233995736766e-17) : first;
}
BP_FN f64 bp_atan64(f64 x) { return x != x ? x : bp_copysign64(bp_atan_above64_(bp_fabs64(x)), x); }
BP_FN f64 bp_atan2_64(f64 y, f64 x) {
  if (x != x || y != y) return (f64)BP_NAN;
  const f64 a = bp_fabs64(x), b = bp_fabs64(y);
  const i32 is_back = (bp_as_u64(x) >> 63) != 0u;
  const f64 infinity = (f64)BP_INFINITY;
  f64 out = 0.0;
  if (a == infinity && b == infinity) {
    out = 0.7853981633974483;
  } else if (b == 0.0) {
    out = 0.0;
  } else if (a == 0.0) {
    out = 1.5707963267948966;
  } else {
    out = bp_atan_above64_(b / a);
  }
  return bp_copysign64(is_back ? 3.141592653589793 - (out - 1.2246467991473532e-16) : out, y);
}
BP_FN f64 bp_asin64(f64 x) {
  const f64 a = bp_fabs64(x);
  if (!(a <= 1.0)) return (f64)BP_NAN;
  return bp_copysign64(bp_atan_above64_(a / bp_sqrt64((1.0 - a) * (1.0 + a))), x);
}
BP_FN f64 bp_acos64(f64 x) {
  if (!(bp_fabs64(x) <= 1.0)) return (f64)BP_NAN;
  return 2.0 * bp_atan_above64_(bp_sqrt64((1.0 - x) / (1.0 + x)));
}

/* ---- hyperbolic functions ---- */

BP_FN f64 bp_sinh64(f64 x) {
  const f64 a = bp_fabs64(x);
  if (!(a < (f64)BP_INFINITY) || a == 0.0) return x;
  const f64 half_ = a > 700.0 ? bp_exp64(0.5 * a) : 0.0;
  const f64 t = a > 700.0 ? 0.0 : bp_expm1_64(a);
  return bp_copysign64(a > 700.0 ? 0.5 * half_ * half_ : 0.5 * (t + t / (t + 1.0)), x);
}
BP_FN f64 bp_cosh64(f64 x) {
  const f64 a = bp_fabs64(x);
  const f64 w = bp_exp64(a > 700.0 ? 0.5 * a : a);
  return a > 700.0 ? 0.5 * w * w : 0.5 * (w + 1.0 / w);
}
BP_FN f64 bp_tanh64(f64 x) {
  const f64 a = bp_fabs64(x);
  const f64 t = bp_expm1_64(2.0 * (a > 22.0 ? 22.0 : a));
  return x != x ? x : bp_copysign64(a > 22.0 ? 1.0 : t / (t + 2.0), x);
}
BP_FN f64 bp_asinh64(f64 x) {
  const f64 a = bp_fabs64(x);
  if (!(a < (f64)BP_INFINITY)) return x;
  const f64 out = a > 268435456.0 ? bp_log64(a) + 0.6931471805599453 : bp_log1p64(a + a * a / (1.0 + bp_sqrt64(a * a + 1.0)));
  return bp_copysign64(out, x);
}
BP_FN f64 bp_acosh64(f64 x) {
  if (!(x >= 1.0)) return (f64)BP_NAN;
  if (x > 268435456.0) return bp_log64(x) + 0.6931471805599453;
  const f64 t = x - 1.0;
  return bp_log1p64(t + bp_sqrt64(2.0 * t + t * t));
}
BP_FN f64 bp_atanh64(f64 x) {
  const f64 a = bp_fabs64(x);
  if (!(a <= 1.0)) return (f64)BP_NAN;
  return bp_copysign64(a == 1.0 ? (f64)BP_INFINITY : 0.5 * bp_log1p64(2.0 * a / (1.0 - a)), x);
}

/* ---- powers ---- */

/* x^y for finite x > 0 and finite y: by the logarithm as a sum of two numbers. [D] */
BP_FN f64 bp_pow_above64_(f64 x, f64 y) {
  const bp_mantissa64_ parts = bp_mantissa_of64_(x);
  const f64 f = parts.m - 1.0;
  const f64 below = 2.0 + f;
  const f64 below_low = f - (below - 2.0);
  const f64 s = f / below;
  const f64 s_low = (bp_fma64(-s, below, f) - s * below_low) / below;
  const f64 z = s * s;
  const f64 z_low = bp_fma64(s, s, -z) + 2.0 * s * s_low;
  const f64 p = 0.2 + z * (0.14285714285714285 + z * (0.1111111111111111 + z * (0.09090909090909091 + z * (0.07692307692307693 + z * (
      0.06666666666666667 + z * (0.058823529411764705 + z * (0.05263157894736842 + z * (0.047619047619047616 + z * (
      0.043478260869565216)))))))));
  /* log m = 2 s (1 + z / 3 + z^2 p) */
  const f64 w = z * 0.3333333333333333;
  const f64 w_low = bp_fma64(z, 0.3333333333333333, -w) + (z * 1.850371707708594e-17 + z_low * 0.3333333333333333 + z * z * p);
  const f64 twice = 2.0 * s;
  const f64 t = twice * w;
  const f64 t_low = bp_fma64(twice, w, -t) + twice * w_low + 2.0 * s_low * w;
  const f64 m = twice + t;
  const f64 m_low = (t - (m - twice)) + t_low + 2.0 * s_low;
  const f64 whole = parts.e * 0.6931471804855391;
  const f64 sum = whole + m;
  const f64 back = sum - whole;
  const f64 sum_low = ((whole - (sum - back)) + (m - back)) + (m_low + parts.e * 7.440617110012397e-11);
  const f64 log_ = sum + sum_low;
  const f64 log_low = sum_low - (log_ - sum);
  const f64 high = y * log_;
  if (!(high < 760.0)) return (f64)BP_INFINITY;
  if (high < -760.0) return 0.0;
  return bp_exp_sum64_(high, bp_fma64(y, log_, -high) + y * log_low);
}
BP_FN f64 bp_pow64(f64 x, f64 y) {
  if (y == 0.0 || x == 1.0) return 1.0;
  if (x != x || y != y) return (f64)BP_NAN;
  const f64 a = bp_fabs64(x), b = bp_fabs64(y), infinity = (f64)BP_INFINITY;
  const i32 is_whole = bp_floor64(b) == b;
  const i32 is_odd = is_whole && b < 9007199254740992.0 && bp_floor64(b * 0.5) != b * 0.5;
  f64 out = 0.0;
  if (b == infinity) return a == 1.0 ? 1.0 : (a > 1.0) == (y > 0.0) ? infinity : 0.0;
  if (a == 0.0 || a == infinity) {
    out = (a == 0.0) == (y > 0.0) ? 0.0 : infinity;
  } else if (x < 0.0 && !is_whole) {
    return (f64)BP_NAN;
  } else {
    out = a == 1.0 ? 1.0 : bp_pow_above64_(a, y);
  }
  return is_odd ? bp_copysign64(out, x) : out;
}
BP_FN f64 bp_hypot64(f64 x, f64 y) {
  const f64 a = bp_fabs64(x), b = bp_fabs64(y), infinity = (f64)BP_INFINITY;
  if (a == infinity || b == infinity) return infinity;
  const f64 larger = a > b ? a : b;
  const f64 scale = larger > 1e150 ? 1e-160 : larger < 1e-150 ? 1e160 : 1.0;
  const f64 u = a * scale, v = b * scale;
  return bp_sqrt64(u * u + v * v) * (larger > 1e150 ? 1e160 : larger < 1e-150 ? 1e-160 : 1.0);
}

/* The rest of a division, exact: eleven bits of the quotient at a time. */
BP_FN f64 bp_fmod64(f64 x, f64 y) {
  const u64 a = bp_as_u64(x) & 0x7fffffffffffffffu;
  const u64 b = bp_as_u64(y) & 0x7fffffffffffffffu;
  if (b == 0u || a >= 0x7ff0000000000000u || b > 0x7ff0000000000000u) return (f64)BP_NAN;
  if (a < b) return x;
  const i32 ea = (i32)(a >> 52), eb = (i32)(b >> 52);
  u64 m = (a & 0x000fffffffffffffu) | (ea != 0 ? 0x0010000000000000u : 0u);
  const u64 d = (b & 0x000fffffffffffffu) | (eb != 0 ? 0x0010000000000000u : 0u);
  i32 left = (ea != 0 ? ea : 1) - (eb != 0 ? eb : 1);
  m %= d;
  while (left > 0) {
    const i32 step = left < 11 ? left : 11;
    m = (m << step) % d;
    left -= step;
  }
  /* m 2^(eb - 1075): normalized by the exact product of an integer and a power of two. */
  const i32 e = (eb != 0 ? eb : 1) - 1075;
  const f64 whole = (f64)m;
  const f64 out = e < -1022 ? whole * bp_two_to64_(e + 60) * bp_two_to64_(-60) : whole * bp_two_to64_(e);
  return bp_copysign64(e < -1022 && (m >> 52) == 0u && eb <= 1 ? bp_as_f64(m) : out, x);
}

/* ---- error function and gamma function ---- */

/* e^(x^2) erfc(x) for x >= 0.5: a polynomial of (x - 3) / (x + 3). */
BP_FN f64 bp_erfc_far64_(f64 x) {
  if (x > 28.0) return 0.0;
  const f64 t = (x - 3.0) / (x + 3.0);
  const f64 p = 1.0740069070883398 + t * (-0.8833944531698836 + t * (0.5902283571041024 + t * (-0.31046726190056184 + t * (
      0.11952776128726571 + t * (-0.026827234624709966 + t * (-0.0012124166268093813 + t * (0.0030340620054672574 + t * (
      -0.000548309694726331 + t * (-0.00027677788930351106 + t * (0.0001075614977090451 + t * (3.0398423921881705e-05 + t * (
      -1.747058701476735e-05 + t * (-4.7502313075737725e-06 + t * (2.7654103185099284e-06 + t * (1.0014294992887557e-06 + t * (
      -4.0798245829659536e-07 + t * (-2.3769581319180378e-07 + t * (4.608561253155146e-08 + t * (5.4957361232324593e-08 + t * (
      -1.0001676849090711e-09 + t * (-1.1066712172163187e-08 + t * (-9.71345776632257e-10 + t * (1.6739940735895342e-09 + t * (
      1.6305251390806974e-10 + t * (-1.3807366412787754e-10)))))))))))))))))))))))));
  const f64 square = x * x;
  return bp_exp_sum64_(-square, -bp_fma64(x, x, -square)) * (p / (x + 3.0));
}
BP_FN f64 bp_erf_near64_(f64 x) {
  const f64 z = x * x;
  const f64 p = 1.0 + z * (-0.3333333333333333 + z * (0.1 + z * (-0.023809523809523808 + z * (0.004629629629629629 + z * (
      -0.0007575757575757576 + z * (0.00010683760683760684 + z * (-1.3227513227513228e-05 + z * (1.4589169000933706e-06 + z * (
      -1.4503852223150468e-07 + z * (1.3122532963802806e-08 + z * (-1.0892221037148573e-09 + z * (8.35070279514724e-11 + z * (
      -5.9477940136376354e-12 + z * (3.9554295164585257e-13))))))))))))));
  return x * 1.1283791670955126 * p;
}
BP_FN f64 bp_erf64(f64 x) {
  const f64 a = bp_fabs64(x);
  if (x != x) return x;
  return a < 0.75 ? bp_erf_near64_(x) : bp_copysign64(1.0 - bp_erfc_far64_(a), x);
}
BP_FN f64 bp_erfc64(f64 x) {
  if (x != x) return x;
  if (x < 0.5 && x > -0.75) return 1.0 - bp_erf_near64_(x);
  return x > 0.0 ? bp_erfc_far64_(x) : 2.0 - bp_erfc_far64_(-x);
}

/* log gamma(2 + t) for t in [-1, 1]. */
BP_FN f64 bp_lgamma_near64_(f64 t) {
  const f64 p = 0.42278433509846713 + t * (-0.10031730167435392 + t * (0.03296500062115691 + t * (-0.012384192193371805 + t * (
      0.004998641164627129 + t * (-0.0021081308339216706 + t * (0.0009153769240386907 + t * (-0.0004057073983775151 + t * (
      0.0001825526153982638 + t * (-8.309511477709561e-05 + t * (3.816907658276081e-05 + t * (-1.7661767658452517e-05 + t * (
      8.221234475942905e-06 + t * (-3.846858091533014e-06 + t * (1.8113906873056685e-06 + t * (-8.54560908975883e-07 + t * (
      3.958940459367468e-07 + t * (-1.878442644643758e-07 + t * (1.042041826608264e-07 + t * (-4.9827532071170234e-08 + t * (
      5.910565853507869e-09 + t * (-2.7296358592514825e-09 + t * (1.6194359237484174e-08 + t * (-7.842557720538356e-09 + t * (
      -4.312495770350818e-09 + t * (2.0986002157033107e-09 + t * (1.5746606982777302e-09 + t * (
      -7.639292345836201e-10)))))))))))))))))))))))))));
  return (1.0 + t) * t * p + 0.0;
}
BP_FN f64 bp_lgamma_above64_(f64 x) {
  if (x < 1.0) return bp_lgamma_near64_(x - 1.0) - bp_log64(x);
  if (x <= 3.0) return bp_lgamma_near64_(x - 2.0);
  if (x < 10.0) {
    f64 product = 1.0;
    while (x > 3.0) {
      x -= 1.0;
      product *= x;
    }
    return bp_log64(product) + bp_lgamma_near64_(x - 2.0);
  }
  const f64 inverse = 1.0 / x;
  const f64 z = inverse * inverse;
  const f64 p = 0.08333333333333333 + z * (-0.002777777777777778 + z * (0.0007936507936507937 + z * (-0.0005952380952380953 + z * (
      0.0008417508417508417 + z * (-0.0019175269175269176 + z * (0.00641025641025641 + z * (-0.029550653594771242)))))));
  const f64 log_ = bp_log64(x);
  if (x > 1e17) return x * (log_ - 1.0);
  return (x - 0.5) * (log_ - 1.0) + (0.4189385332046728 + p * inverse);
}
BP_FN f64 bp_lgamma64(f64 x) {
  if (x != x) return x;
  const f64 infinity = (f64)BP_INFINITY;
  if (bp_fabs64(x) == infinity) return infinity;
  if (x > 0.0) return bp_lgamma_above64_(x);
  const f64 nearest = bp_rint64(x);
  if (nearest == x) return infinity;
  const f64 rest = bp_fabs64(x - nearest);
  if (rest < 1e-20) return -bp_log64(rest) - bp_lgamma_above64_(1.0 - x);
  return 1.1447298858494002 - bp_log64(bp_sin64(3.141592653589793 * rest)) - bp_lgamma_above64_(1.0 - x);
}
#endif
)float64";

}  // namespace backplane::driver::spirv
