// drivers/spirv/prelude.cpp: the words of the kernel dialect (docs/dialect.md) in those that the parser knows, and what a device rounds
// otherwise than the dialect does, composed of integers.
#include "float64.h"
#include "float64_more.h"
#include "parser.h"

namespace backplane::driver::spirv {
namespace {

constexpr const char* kText = R"prelude(
#define BP_GLOBAL __global
#define BP_LOCAL __local
#define BP_RESTRICT restrict
#define BP_FN static inline
#define BP_KERNEL(name, pointers, Params, ...) __kernel void name(__VA_ARGS__, const Params bp_arg)
#define BP_LOCAL_ARRAY(T, name, n) __local T name[n]
#define BP_BARRIER() __bp_barrier()
#define BP_ITEM __bp_item()
#define BP_GROUP_ID(d) __bp_group_id(d)
#define BP_GROUPS(d) __bp_groups(d)
#define BP_UNROLL __unroll
#define BP_IVDEP
#define BP_INFINITY bp_as_f32(0x7f800000u)
#define BP_NAN bp_as_f32(0x7fc00000u)

#ifdef __BP_SUBGROUP
#define BP_SHUFFLE_XOR(x, mask) __bp_shuffle_xor((u32)(x), (u32)(mask))
#endif
#ifdef __BP_F16
#define BP_NATIVE_F16
#define bp_f16_to_f32(x) __bp_f16_to_f32(x)
#define bp_f32_to_f16(x) __bp_f32_to_f16(x)
#endif
#ifdef __BP_FAST_FMA
#define BP_FAST_FMA
#endif

#define BP_ATOMIC_ADD_I32(p, v) __bp_atomic_add_i32((p), (v))
#define BP_ATOMIC_CAS_32(p, expected, desired) __bp_atomic_cas_32((p), (expected), (desired))
#ifdef __BP_ATOMIC_I64
#define BP_ATOMIC_ADD_I64(p, v) __bp_atomic_add_i64((p), (v))
#define BP_ATOMIC_CAS_64(p, expected, desired) __bp_atomic_cas_64((p), (expected), (desired))
#endif
#ifdef __BP_ATOMIC_ADD_F32
#define BP_ATOMIC_ADD_F32(p, v) __bp_atomic_add_f32((p), (v))
#else
#define BP_ATOMIC_ADD_F32(p, v) bp_atomic_add_f32_((p), (v))
BP_FN void bp_atomic_add_f32_(BP_GLOBAL f32* p, f32 v) {
  BP_GLOBAL u32* const bits = (BP_GLOBAL u32*)p;
  u32 seen = *bits;
  for (u32 was = ~seen; was != seen;) {
    was = seen;
    seen = __bp_atomic_cas_32(bits, was, bp_as_u32(bp_as_f32(was) + v));
  }
}
#endif

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
)prelude";

}  // namespace

std::string float64_words() { return std::string(kFloat64Text + 1) + (kFloat64MoreText + 1); }

std::string prelude() { return kText + 1 + float64_words(); }

std::vector<std::pair<std::string, std::string>> defined_words(const Facts& facts, const Options& options) {
  std::vector<std::pair<std::string, std::string>> out = {{"__BP_SPIRV", "1"}};
  const auto define = [&](bool is_so, const char* name) {
    if (is_so) out.emplace_back(name, "1");
  };
  define(facts.subgroup_size != 0, "__BP_SUBGROUP");
  define(facts.float16, "__BP_F16");
  define(facts.exact_fma && facts.fast_fma, "__BP_FAST_FMA");
  define(facts.atomic_i64, "__BP_ATOMIC_I64");
  define(facts.atomic_add_f32, "__BP_ATOMIC_ADD_F32");
  define(facts.exact_division || options.fast_math, "__BP_EXACT_DIVISION");
  define(facts.exact_sqrt || options.fast_math, "__BP_EXACT_SQRT");
  define(facts.exact_fma, "__BP_EXACT_FMA");
  return out;
}

}  // namespace backplane::driver::spirv
