// tests/host/spirv_words_test.c: what drivers/spirv's prelude composes, against the C library: quotients, roots and fma to the last bit on
// a device whose own are wrong by some ulp, functions of f64 to 16 ulp. WORDS is the prelude's text.
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t i32;
typedef uint32_t u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
#define __global
#define __bp_atomic_cas_32(p, expected, desired) (*(p) == (expected) ? *(p) = (desired), (expected) : *(p))
static u64 bp_as_u64(f64 x) {
  u64 out;
  memcpy(&out, &x, 8);
  return out;
}
static f64 bp_as_f64(u64 x) {
  f64 out;
  memcpy(&out, &x, 8);
  return out;
}
static u32 bp_as_u32(f32 x) {
  u32 out;
  memcpy(&out, &x, 4);
  return out;
}
static f32 bp_as_f32(u32 x) {
  f32 out;
  memcpy(&out, &x, 4);
  return out;
}
static i32 __bp_highest_bit(u32 x) { return 31 - __builtin_clz(x); }
static f32 off(f32 x) { return x == 0 || !isfinite(x) ? x : bp_as_f32(bp_as_u32(x) + (u32)(rand() % 5) - 2u); }
#define __bp_divide(x, y) off((x) / (y))
#define __bp_sqrt(x) off(sqrtf(x))
#define bp_floor floorf
#define bp_rint64 rint
#define bp_fma64 fma
#define bp_sqrt64 sqrt
#define bp_fabs64 fabs
#define bp_floor64 floor
#define bp_copysign64 copysign
#define BP_HAS_F64 1
#include WORDS

static int wrong = 0;
static u64 bits(void) {
  u64 x = 0;
  for (int i = 0; i < 5; ++i) x = x << 15 ^ (u64)rand();
  return x;
}
static const f64 kEnds[] = {0.0,
                            -0.0,
                            INFINITY,
                            -INFINITY,
                            NAN,
                            1,
                            -1,
                            0.5,
                            -0.5,
                            2,
                            -2,
                            3,
                            1e-310,
                            5e-324,
                            -5e-324,
                            1.7e308,
                            -1.7e308,
                            709.78,
                            -745.1,
                            1e22,
                            1e300,
                            3.14159265358979,
                            1.5707963267948966,
                            1e-20,
                            0.75,
                            -0.75,
                            27,
                            -7.5,
                            10,
                            20,
                            1e-45,
                            3.4028235e38};
#define ENDS ((int)(sizeof kEnds / sizeof *kEnds))
static f64 any_f64(void) {
  const int kind = rand() % 8;
  if (kind == 0) return bp_as_f64(bits());
  if (kind == 1) return kEnds[rand() % ENDS];
  const int range = kind == 2 ? 2000 : 120;
  return bp_as_f64((bits() & 0x800fffffffffffffu) | (u64)(1023 - range / 2 + rand() % range) << 52);
}
static f32 any_f32(void) {
  const int kind = rand() % 8;
  if (kind == 0) return bp_as_f32((u32)bits());
  if (kind == 1) return (f32)kEnds[rand() % ENDS];
  const int range = kind == 2 ? 250 : 24;
  return bp_as_f32(((u32)bits() & 0x807fffffu) | (u32)(127 - range / 2 + rand() % range) << 23);
}
static void same(const char* what, f64 got, f64 want) {
  if ((got == want && signbit(got) == signbit(want)) || (isnan(got) && isnan(want))) return;
  if (wrong++ < 20) printf("%s is %a, not %a\n", what, got, want);
}
static f64 distance(f64 got, long double want) {
  const f64 near = (f64)want;
  if (isnan(got) && isnan(near)) return 0;
  if (got == near) return signbit(got) == signbit(near) ? 0 : 1e9;
  if (!isfinite(got) || !isfinite(near)) return 1e9;
  return (f64)(fabsl((long double)got - want) / (nextafter(fabs(near), INFINITY) - fabs(near)));
}
static void hold(const char* what, f64 x, f64 y, f64 got, long double want) {
  const f64 ulp = distance(got, want);
  if (!(ulp <= 16) && wrong++ < 20) printf("%s(%a, %a) is %a, not %La: %g ulp\n", what, x, y, got, want, ulp);
}
/* 2^low to 2^high, of both signs; or low to high. */
static f64 between(int is_power, f64 low, f64 high) {
  const f64 x = low + (high - low) * drand48();
  return is_power ? (rand() % 2 ? -1 : 1) * exp2(x) * (1 + drand48()) : x;
}
static long double lgamma_of(long double x) {
  int sign;
  return lgammal_r(x, &sign);
}
#define HOLD(name, of, is_power, low, high)                           \
  for (int i = 0; i < 20000 + ENDS; ++i) {                            \
    const f64 x = i < ENDS ? kEnds[i] : between(is_power, low, high); \
    hold(#name, x, 0, name(x), of((long double)x));                   \
  }
#define HOLD_TWO(name, of, is_power, low, high, low_y, high_y)                 \
  for (int i = 0; i < 20000 + ENDS * ENDS; ++i) {                              \
    const int at_end = i < ENDS * ENDS;                                        \
    const f64 x = at_end ? kEnds[i / ENDS] : between(is_power, low, high);     \
    const f64 y = at_end ? kEnds[i % ENDS] : between(is_power, low_y, high_y); \
    hold(#name, x, y, name(x, y), of((long double)x, (long double)y));         \
  }

int main(void) {
  for (int i = 0; i < 300000; ++i) {
    const f64 a = any_f64(), b = any_f64(), c = rand() % 4 ? any_f64() : -a * b;
    same("fma of f64", bp_fma64_(a, b, c), fma(a, b, c));
    const f32 x = any_f32(), y = any_f32(), z = rand() % 4 ? any_f32() : -x * y;
    same("fma of f32", bp_fma_(x, y, z), fmaf(x, y, z));
    same("a quotient", bp_quotient_(x, y), x / y);
    same("a root", bp_root_(x), sqrtf(x));
  }
  HOLD(bp_exp64, expl, 0, -745, 710)
  HOLD(bp_exp64, expl, 1, -60, 1)
  HOLD(bp_exp2_64, exp2l, 0, -1074, 1024)
  HOLD(bp_expm1_64, expm1l, 1, -60, 9)
  HOLD(bp_log64, logl, 1, -1074, 1000)
  HOLD(bp_log64, logl, 0, 0.5, 2)
  HOLD(bp_log2_64, log2l, 0, 0.5, 2)
  HOLD(bp_log10_64, log10l, 1, -1074, 1000)
  HOLD(bp_log1p64, log1pl, 1, -60, 100)
  HOLD(bp_sin64, sinl, 1, -60, 62)
  HOLD(bp_cos64, cosl, 1, -60, 62)
  HOLD(bp_tan64, tanl, 1, -60, 62)
  HOLD(bp_asin64, asinl, 0, -1, 1)
  HOLD(bp_acos64, acosl, 0, -1, 1)
  HOLD(bp_atan64, atanl, 1, -60, 60)
  HOLD(bp_sinh64, sinhl, 1, -60, 9.4)
  HOLD(bp_cosh64, coshl, 1, -60, 9.4)
  HOLD(bp_tanh64, tanhl, 1, -60, 9)
  HOLD(bp_asinh64, asinhl, 1, -60, 1000)
  HOLD(bp_acosh64, acoshl, 0, 1, 100)
  HOLD(bp_atanh64, atanhl, 1, -60, -1)
  HOLD(bp_erf64, erfl, 1, -60, 4)
  HOLD(bp_erfc64, erfcl, 0, -3, 26)
  HOLD(bp_lgamma64, lgamma_of, 0, 0, 200)
  HOLD_TWO(bp_pow64, powl, 0, 0, 30, -200, 200)
  HOLD_TWO(bp_fmod64, fmodl, 1, -1074, 1000, -1074, 1000)
  HOLD_TWO(bp_hypot64, hypotl, 1, -1000, 1000, -1000, 1000)
  HOLD_TWO(bp_atan2_64, atan2l, 1, -100, 100, -100, 100)
  printf("%d wrong\n", wrong);
  return wrong != 0;
}
