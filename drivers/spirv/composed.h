// drivers/spirv/composed.h: a part of the prelude: quotients, roots and products with a sum, rounded once, for devices that round them
// otherwise. Their own result, where it is near, is corrected by the exact rest; integers do the rest.
#pragma once

namespace backplane::driver::spirv {

constexpr const char* kComposedText = R"prelude(
/* Numbers as sign, exponent e (127 of 1.0f) and a mantissa with its highest bit in place 26, which ends with a bit for all that is below. */
#if !defined(__BP_EXACT_DIVISION) || !defined(__BP_EXACT_SQRT) || !defined(__BP_EXACT_FMA)
BP_FN f32 bp_rounded_(u32 sign, i32 e, u32 m) {
  if (e >= 255) return bp_as_f32(sign | 0x7f800000u);
  if (e <= 0) {
    const i32 shift = 1 - e;
    m = shift > 26 ? 1u : (m >> shift) | ((m & ((1u << shift) - 1u)) != 0u ? 1u : 0u);
  }
  const u32 rest = m & 7u;
  const u32 kept = m >> 3;
  const u32 rounded = kept + (rest > 4u || (rest == 4u && (kept & 1u) != 0u) ? 1u : 0u);
  return bp_as_f32(sign | ((e > 0 ? (u32)(e - 1) << 23 : 0u) + rounded));
}
/* Of the bits of a finite number that is not 0, without its sign. */
BP_FN i32 bp_exponent_(u32 bits) { return bits >= 0x00800000u ? (i32)(bits >> 23) : __bp_highest_bit(bits) - 22; }
BP_FN u32 bp_significand_(u32 bits) {
  return bits >= 0x00800000u ? (bits & 0x007fffffu) | 0x00800000u : bits << (23 - __bp_highest_bit(bits));
}
#endif

#ifndef __BP_EXACT_DIVISION
BP_FN f32 bp_quotient_(f32 x, f32 y) {
  const u32 a = bp_as_u32(x) & 0x7fffffffu;
  const u32 b = bp_as_u32(y) & 0x7fffffffu;
  const u32 sign = (bp_as_u32(x) ^ bp_as_u32(y)) & 0x80000000u;
  if (a > 0x7f800000u || b > 0x7f800000u || (a == b && (a == 0u || a == 0x7f800000u))) return BP_NAN;
  if (a == 0x7f800000u || b == 0u) return bp_as_f32(sign | 0x7f800000u);
  if (a == 0u || b == 0x7f800000u) return bp_as_f32(sign);
  const u32 mb = bp_significand_(b);
  const u32 whole = bp_significand_(a);
  const i32 is_less = whole < mb;
  const u32 ma = is_less ? whole << 1 : whole;
  u32 q = (u32)(__bp_divide((f32)ma, (f32)mb) * 33554432.0f);
  i64 rest = (i64)((u64)ma << 25) - (i64)((u64)q * (u64)mb);
  const i32 by = (i32)bp_floor(__bp_divide((f32)rest, (f32)mb));
  q += (u32)by;
  rest -= (i64)by * (i64)mb;
  for (; rest < 0; rest += (i64)mb) q -= 1u;
  for (; rest >= (i64)mb; rest -= (i64)mb) q += 1u;
  return bp_rounded_(sign, bp_exponent_(a) - bp_exponent_(b) + (is_less ? 126 : 127), q << 1 | (rest != 0 ? 1u : 0u));
}
#endif

#ifndef __BP_EXACT_SQRT
BP_FN f32 bp_root_(f32 x) {
  const u32 bits = bp_as_u32(x);
  const u32 a = bits & 0x7fffffffu;
  if (a == 0u) return x;
  if (a > 0x7f800000u || (bits >> 31) != 0u) return BP_NAN;
  if (a == 0x7f800000u) return x;
  const i32 e = bp_exponent_(a);
  const i32 is_odd = e & 1;
  const u64 n = (u64)bp_significand_(a) << (is_odd ? 27 : 28);
  u32 s = (u32)__bp_sqrt((f32)n);
  i64 rest = (i64)n - (i64)((u64)s * (u64)s);
  for (; rest < 0; rest += 2 * (i64)s + 1) s -= 1u;
  for (; rest > 2 * (i64)s; s += 1u) rest -= 2 * (i64)s + 1;
  return bp_rounded_(0u, 152 + (e - (is_odd ? 177 : 178)) / 2, s << 1 | (rest != 0 ? 1u : 0u));
}
#endif

#ifndef __BP_EXACT_FMA
/* x 2^-by, with all bits below the last one in it. */
BP_FN u64 bp_shifted_(u64 x, i32 by) {
  if (by <= 0) return x;
  return by > 63 ? (x != 0u ? 1u : 0u) : (x >> by) | ((x & (((u64)1 << by) - 1u)) != 0u ? 1u : 0u);
}
BP_FN f32 bp_fma_(f32 x, f32 y, f32 z) {
  const u32 a = bp_as_u32(x) & 0x7fffffffu;
  const u32 b = bp_as_u32(y) & 0x7fffffffu;
  const u32 c = bp_as_u32(z) & 0x7fffffffu;
  if (a >= 0x7f800000u || b >= 0x7f800000u) return x * y + z;
  if (c >= 0x7f800000u) return z;
  const u32 sign = (bp_as_u32(x) ^ bp_as_u32(y)) & 0x80000000u;
  const u32 sign_z = bp_as_u32(z) & 0x80000000u;
  if (a == 0u || b == 0u) return c != 0u ? z : bp_as_f32(sign & sign_z);
  u64 p = ((u64)bp_significand_(a) * (u64)bp_significand_(b)) << 14;
  const i32 ep = bp_exponent_(a) + bp_exponent_(b) - 314;
  u64 q = c == 0u ? (u64)0 : (u64)bp_significand_(c) << 37;
  const i32 eq = c == 0u ? ep : bp_exponent_(c) - 187;
  const i32 e = ep > eq ? ep : eq;
  p = bp_shifted_(p, e - ep);
  q = bp_shifted_(q, e - eq);
  const u64 sum = sign == sign_z ? p + q : p >= q ? p - q : q - p;
  if (sum == 0u) return 0.0f;
  const u32 high = (u32)(sum >> 32);
  const i32 top = high != 0u ? 32 + __bp_highest_bit(high) : __bp_highest_bit((u32)sum);
  const u64 m = top > 26 ? bp_shifted_(sum, top - 26) : sum << (26 - top);
  return bp_rounded_(p >= q ? sign : sign_z, e + top + 127, (u32)m);
}
#endif

#if BP_HAS_F64 && !defined(__BP_EXACT_FMA64)
/* Integers of 128 bits, and their part from 2^by on, with all bits below in the last one. */
typedef struct {
  u64 high, low;
} bp_wide_;
BP_FN bp_wide_ bp_wide_shifted_(bp_wide_ x, i32 by) {
  bp_wide_ out = x;
  if (by <= 0) return out;
  if (by >= 64) {
    const i32 rest = by - 64;
    const u64 lost = x.low | (rest >= 64 ? x.high : rest == 0 ? (u64)0 : x.high << (64 - rest));
    out.high = 0u;
    out.low = (rest >= 64 ? (u64)0 : x.high >> rest) | (lost != 0u ? 1u : 0u);
    return out;
  }
  out.high = x.high >> by;
  out.low = x.high << (64 - by) | x.low >> by | (x.low << (64 - by) != 0u ? 1u : 0u);
  return out;
}
BP_FN i32 bp_highest_bit64_(u64 x) {
  const u32 high = (u32)(x >> 32);
  return high != 0u ? 32 + __bp_highest_bit(high) : __bp_highest_bit((u32)x);
}
BP_FN f64 bp_rounded64_(u64 sign, i32 e, u64 m) {
  if (e >= 2047) return bp_as_f64(sign | 0x7ff0000000000000u);
  if (e <= 0) {
    const i32 shift = 1 - e;
    m = shift > 55 ? (u64)1 : (m >> shift) | ((m & (((u64)1 << shift) - 1u)) != 0u ? 1u : 0u);
  }
  const u64 rest = m & 7u;
  const u64 kept = m >> 3;
  const u64 rounded = kept + (rest > 4u || (rest == 4u && (kept & 1u) != 0u) ? 1u : 0u);
  return bp_as_f64(sign | ((e > 0 ? (u64)(e - 1) << 52 : (u64)0) + rounded));
}
BP_FN i32 bp_exponent64_(u64 bits) { return (bits >> 52) != 0u ? (i32)(bits >> 52) : bp_highest_bit64_(bits) - 51; }
BP_FN u64 bp_significand64_(u64 bits) {
  return (bits >> 52) != 0u ? (bits & 0x000fffffffffffffu) | 0x0010000000000000u : bits << (52 - bp_highest_bit64_(bits));
}
BP_FN f64 bp_fma64_(f64 x, f64 y, f64 z) {
  const u64 a = bp_as_u64(x) & 0x7fffffffffffffffu;
  const u64 b = bp_as_u64(y) & 0x7fffffffffffffffu;
  const u64 c = bp_as_u64(z) & 0x7fffffffffffffffu;
  if (a >= 0x7ff0000000000000u || b >= 0x7ff0000000000000u) return x * y + z;
  if (c >= 0x7ff0000000000000u) return z;
  const u64 sign = (bp_as_u64(x) ^ bp_as_u64(y)) & 0x8000000000000000u;
  const u64 sign_z = bp_as_u64(z) & 0x8000000000000000u;
  if (a == 0u || b == 0u) return c != 0u ? z : bp_as_f64(sign & sign_z);
  const u64 ma = bp_significand64_(a) << 10, mb = bp_significand64_(b) << 10;
  bp_wide_ p;
  p.low = ma * mb;
  const u64 a0 = ma & 0xffffffffu, a1 = ma >> 32, b0 = mb & 0xffffffffu, b1 = mb >> 32;
  const u64 middle = a1 * b0 + (a0 * b0 >> 32);
  p.high = a1 * b1 + (middle >> 32) + (((middle & 0xffffffffu) + a0 * b1) >> 32);
  const i32 ep = bp_exponent64_(a) + bp_exponent64_(b) - 2170;
  bp_wide_ q;
  q.high = c == 0u ? (u64)0 : bp_significand64_(c) << 8;
  q.low = 0u;
  const i32 eq = c == 0u ? ep : bp_exponent64_(c) - 1147;
  const i32 e = ep > eq ? ep : eq;
  p = bp_wide_shifted_(p, e - ep);
  q = bp_wide_shifted_(q, e - eq);
  const i32 is_larger = p.high > q.high || (p.high == q.high && p.low >= q.low);
  bp_wide_ sum;
  if (sign == sign_z) {
    sum.low = p.low + q.low;
    sum.high = p.high + q.high + (sum.low < p.low ? 1u : 0u);
  } else {
    const bp_wide_ more = is_larger ? p : q, less = is_larger ? q : p;
    sum.low = more.low - less.low;
    sum.high = more.high - less.high - (more.low < less.low ? 1u : 0u);
  }
  if (sum.high == 0u && sum.low == 0u) return 0.0;
  const i32 top = sum.high != 0u ? 64 + bp_highest_bit64_(sum.high) : bp_highest_bit64_(sum.low);
  const u64 m = top > 55 ? bp_wide_shifted_(sum, top - 55).low : sum.low << (55 - top);
  return bp_rounded64_(is_larger ? sign : sign_z, e + top + 1023, m);
}
#endif
)prelude";

}  // namespace backplane::driver::spirv
