// drivers/sim/prelude.h: the words of the kernel dialect (docs/dialect.md) in C, and what a compiled kernel and the device know of each
// other.
//
// With BP_GROUP 1 an item is the whole group: a barrier is nothing, local arrays lie on the stack, and the loop over the groups is compiled
// with the kernel. With more, each call of `run` is one item of one group, on a fiber (fibers.h). No header of the system is included.
#pragma once

#include <cstdint>
#include <string>

#include "../engine/prelude.h"
#include "../engine/transpose.h"

namespace backplane::driver::sim {

/// `bp_kernel_<name>` of a compiled unit; as in the prelude.
struct KernelEntry {
  uint32_t pointers, value_bytes, group, unused;
  /// args: where the pointers point to, then the value. at: number of the group in each dimension and the item; NULL with group 1.
  void (*run)(const uint64_t* args, const uint32_t* grid, const uint32_t* at);
};

/// `bp_device` of a compiled unit: what its kernels call. load fills it.
struct DeviceCalls {
  void (*fail)(uint32_t line, const char* condition);  // does not return
  void (*barrier)(uint32_t line);
  void* (*local)(uint64_t bytes, uint32_t line);
};

constexpr const char* kPreludeText = R"prelude(
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

typedef struct {
  u32 pointers, value_bytes, group, unused;
  void (*run)(const u64* args, const u32* grid, const u32* at);
} bp_kernel_entry;
struct bp_device_calls {
  void (*fail)(u32 line, const char* condition);
  void (*barrier)(u32 line);
  void* (*local)(u64 bytes, u32 line);
};
#define BP_EXPORTED __attribute__((visibility("default"), used))
BP_EXPORTED struct bp_device_calls bp_device;

#define BP_GLOBAL
#define BP_LOCAL
#define BP_VECTOR(T, name) typedef T name __attribute__((vector_size(BP_VECTOR_BYTES), may_alias, aligned(sizeof(T))))
#define BP_VECTOR_ZERO(name) ((name){0})
#define BP_FN static inline __attribute__((always_inline, unused)) /* a loop is vectorised only if what it calls is inlined */

#define BP_KERNEL(name, pointers, Params, ...) BP_KERNEL_OF(name, pointers, Params, __VA_ARGS__)
/* The body is inlined. GCC 12 takes a store to a local array for one to a pointer that is an argument, where both are written in one
 * loop, and reads the array ahead of it; of a pointer that was read from memory it assumes nothing. */
#define BP_KERNEL_OF(name, n, Params, ...)                                                                                            \
  BP_FN void bp_body_##name(__VA_ARGS__, const Params* BP_RESTRICT bp_arg_, i32 bp_x_, i32 bp_y_, i32 bp_z_, const u32* bp_grid_,     \
                            i32 bp_item_);                                                                                            \
  static void bp_run_##name(const u64* bp_args_, const u32* bp_grid_, const u32* bp_at_) {                                            \
    const Params* const bp_value_ = (const Params*)(bp_args_ + n);                                                                        \
    BP_EACH_GROUP(bp_body_##name(BP_EACH_##n(BP_POINTER), bp_value_, BP_HERE))                                                            \
  }                                                                                                                                   \
  BP_EXPORTED const bp_kernel_entry bp_kernel_##name = {n, sizeof(Params), BP_GROUP, 0, bp_run_##name};                               \
  BP_FN void bp_body_##name(__VA_ARGS__, const Params* BP_RESTRICT bp_arg_, i32 bp_x_, i32 bp_y_, i32 bp_z_, const u32* bp_grid_,     \
                            i32 bp_item_)
#define BP_POINTER(i) (void*)bp_args_[i]
#define bp_arg (*bp_arg_)
#define BP_GROUP_ID(d) ((d) == 0 ? bp_x_ : (d) == 1 ? bp_y_ : bp_z_)
#define BP_GROUPS(d) ((i32)bp_grid_[d])

#if BP_GROUP > 1
/* Other items write between two barriers: nothing is promised to the compiler. */
#define BP_RESTRICT
#define BP_ITEM bp_item_
#define BP_EACH_GROUP(call) call;
#define BP_HERE (i32)bp_at_[0], (i32)bp_at_[1], (i32)bp_at_[2], bp_grid_, (i32)bp_at_[3]
#define BP_BARRIER() bp_device.barrier(__LINE__)
#define BP_LOCAL_ARRAY(T, name, n) T* const name = (T*)bp_device.local(sizeof(T) * (u64)(n), __LINE__)
#else
#define BP_RESTRICT restrict
#define BP_ITEM 0
#define BP_EACH_GROUP(call)                                     \
  for (u32 bp_z_ = 0; bp_z_ < bp_grid_[2]; ++bp_z_)             \
    for (u32 bp_y_ = 0; bp_y_ < bp_grid_[1]; ++bp_y_)           \
      for (u32 bp_x_ = 0; bp_x_ < bp_grid_[0]; ++bp_x_) call;
#define BP_HERE (i32)bp_x_, (i32)bp_y_, (i32)bp_z_, bp_grid_, 0
#define BP_BARRIER() ((void)0)
#define BP_LOCAL_ARRAY(T, name, n) T name[n] __attribute__((aligned(64)))
#endif

#ifdef __clang__
#define BP_UNROLL _Pragma("clang loop unroll_count(8)")
#define BP_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define BP_UNROLL _Pragma("GCC unroll 8")
#define BP_IVDEP _Pragma("GCC ivdep")
#endif

/* GCC 12 takes the mask of a comparison, -1, for its value where the value is the place that a loop reads. */
#if defined(__GNUC__) && !defined(__clang__)
#define BP_OPAQUE_ZERO ({ i64 zero_ = 0; __asm__("" : "+r"(zero_)); zero_; })
#endif

#ifdef BP_DEBUG
#define BP_ASSERT(condition) ((condition) ? (void)0 : bp_device.fail(__LINE__, #condition))
#else
#define BP_ASSERT(condition) ((void)0)
#endif

BP_FN u32 bp_as_u32(f32 x) { union { f32 f; u32 u; } bits = {.f = x}; return bits.u; }
BP_FN f32 bp_as_f32(u32 x) { union { u32 u; f32 f; } bits = {.u = x}; return bits.f; }
BP_FN u64 bp_as_u64(f64 x) { union { f64 f; u64 u; } bits = {.f = x}; return bits.u; }
BP_FN f64 bp_as_f64(u64 x) { union { u64 u; f64 f; } bits = {.u = x}; return bits.f; }

#define BP_INFINITY __builtin_inff()
#define BP_NAN __builtin_nanf("")

#define bp_sqrt __builtin_sqrtf
#define bp_fabs __builtin_fabsf
#define bp_floor __builtin_floorf
#define bp_ceil __builtin_ceilf
#define bp_trunc __builtin_truncf
#define bp_rint __builtin_rintf
#define bp_fma __builtin_fmaf
#define bp_copysign __builtin_copysignf
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
#define BP_FAST_FMA
/* GCC makes vectors of this loop; no builtin of its takes vectors of any size. */
#define BP_VECTOR_FMA_BY_(fma, x, y, z)                                                               \
  ({                                                                                                  \
    __typeof__(z) sums_ = (z);                                                                        \
    for (u32 i_ = 0; i_ < sizeof sums_ / sizeof(x); ++i_) sums_[i_] = fma((x), (y)[i_], sums_[i_]);   \
    sums_;                                                                                            \
  })
#define BP_VECTOR_FMA(x, y, z)                                 \
  _Generic((x),                                                \
      f32: BP_VECTOR_FMA_BY_(__builtin_fmaf, x, y, z),         \
      double: BP_VECTOR_FMA_BY_(__builtin_fma, x, y, z),       \
      default: (x) * (y) + (z))
#endif

#define bp_sqrt64 __builtin_sqrt
#define bp_fabs64 __builtin_fabs
#define bp_floor64 __builtin_floor
#define bp_ceil64 __builtin_ceil
#define bp_trunc64 __builtin_trunc
#define bp_rint64 __builtin_rint
#define bp_fma64 __builtin_fma
#define bp_copysign64 __builtin_copysign
#define bp_exp64 __builtin_exp
#define bp_exp2_64 __builtin_exp2
#define bp_expm1_64 __builtin_expm1
#define bp_log64 __builtin_log
#define bp_log2_64 __builtin_log2
#define bp_log10_64 __builtin_log10
#define bp_log1p64 __builtin_log1p
#define bp_sin64 __builtin_sin
#define bp_cos64 __builtin_cos
#define bp_tan64 __builtin_tan
#define bp_asin64 __builtin_asin
#define bp_acos64 __builtin_acos
#define bp_atan64 __builtin_atan
#define bp_atan2_64 __builtin_atan2
#define bp_sinh64 __builtin_sinh
#define bp_cosh64 __builtin_cosh
#define bp_tanh64 __builtin_tanh
#define bp_asinh64 __builtin_asinh
#define bp_acosh64 __builtin_acosh
#define bp_atanh64 __builtin_atanh
#define bp_pow64 __builtin_pow
#define bp_fmod64 __builtin_fmod
#define bp_hypot64 __builtin_hypot
#define bp_erf64 __builtin_erf
#define bp_erfc64 __builtin_erfc
double lgamma_r(double, int*); /* lgamma writes a variable of the process */
BP_FN f64 bp_lgamma64(f64 x) {
  int sign;
  return lgamma_r(x, &sign);
}

#if BP_GROUP == 1 && defined(__F16C__)
#define BP_NATIVE_F16_ROWS /* GCC 12 makes no vector instructions of conversions of one half */
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define BP_HALVES_ 16
#define BP_WIDEN_(halves) __builtin_ia32_vcvtph2ps512_mask(halves, (bp_floats_){0}, (u16)-1, 4)
#define BP_NARROW_(floats) __builtin_ia32_vcvtps2ph512_mask(floats, 0, (bp_halves_){0}, (u16)-1)
#define BP_FIRST_(count) ((u16)((1u << (count)) - 1u))
#define BP_LOAD_HALVES_(from, count) __builtin_ia32_loaddquhi256_mask((const void*)(from), (bp_halves_){0}, BP_FIRST_(count))
#define BP_LOAD_FLOATS_(from, count) __builtin_ia32_loadups512_mask(from, (bp_floats_){0}, BP_FIRST_(count))
#define BP_STORE_HALVES_(to, halves, count) __builtin_ia32_storedquhi256_mask((void*)(to), halves, BP_FIRST_(count))
#define BP_STORE_FLOATS_(to, floats, count) __builtin_ia32_storeups512_mask(to, floats, BP_FIRST_(count))
#else
#define BP_HALVES_ 8
#define BP_WIDEN_(halves) __builtin_ia32_vcvtph2ps256(halves)
#define BP_NARROW_(floats) __builtin_ia32_vcvtps2ph256(floats, 0)
#define BP_LOAD_HALVES_(from, count) bp_first_halves_(from, count)
#define BP_LOAD_FLOATS_(from, count) bp_first_floats_(from, count)
#define BP_STORE_HALVES_(to, halves, count) for (i32 k = 0; k < (count); ++k) (to)[k] = (u16)(halves)[k]
#define BP_STORE_FLOATS_(to, floats, count) for (i32 k = 0; k < (count); ++k) (to)[k] = (floats)[k]
#endif
typedef short bp_halves_ __attribute__((vector_size(2 * BP_HALVES_)));
typedef f32 bp_floats_ __attribute__((vector_size(4 * BP_HALVES_)));
BP_FN bp_halves_ bp_first_halves_(const u16* from, i32 count) {
  bp_halves_ halves = {0};
  for (i32 k = 0; k < count; ++k) halves[k] = (short)from[k];
  return halves;
}
BP_FN bp_floats_ bp_first_floats_(const f32* from, i32 count) {
  bp_floats_ floats = {0};
  for (i32 k = 0; k < count; ++k) floats[k] = from[k];
  return floats;
}
#define BP_IS_ONE_(count) (__builtin_constant_p(count) && (count) == 1)
typedef short bp_eight_halves_ __attribute__((vector_size(16)));
typedef f32 bp_four_floats_ __attribute__((vector_size(16)));
BP_FN void bp_f16_row_to_f32(f32* to, const u16* from, i32 count) {
  if (BP_IS_ONE_(count)) {
    *to = __builtin_ia32_vcvtph2ps((bp_eight_halves_){(short)*from})[0];
    return;
  }
  bp_halves_ halves;
  bp_floats_ floats;
  i32 i = 0;
  BP_UNROLL for (; i + BP_HALVES_ <= count; i += BP_HALVES_) {
    __builtin_memcpy(&halves, from + i, sizeof halves);
    floats = BP_WIDEN_(halves);
    __builtin_memcpy(to + i, &floats, sizeof floats);
  }
  if (i == count) return;
  floats = BP_WIDEN_(BP_LOAD_HALVES_(from + i, count - i));
  BP_STORE_FLOATS_(to + i, floats, count - i);
}
BP_FN void bp_f32_row_to_f16(u16* to, const f32* from, i32 count) {
  if (BP_IS_ONE_(count)) {
    *to = (u16)__builtin_ia32_vcvtps2ph((bp_four_floats_){*from}, 0)[0];
    return;
  }
  bp_halves_ halves;
  bp_floats_ floats;
  i32 i = 0;
  BP_UNROLL for (; i + BP_HALVES_ <= count; i += BP_HALVES_) {
    __builtin_memcpy(&floats, from + i, sizeof floats);
    halves = BP_NARROW_(floats);
    __builtin_memcpy(to + i, &halves, sizeof halves);
  }
  if (i == count) return;
  halves = BP_NARROW_(BP_LOAD_FLOATS_(from + i, count - i));
  BP_STORE_HALVES_(to + i, halves, count - i);
}
#endif

#if BP_GROUP == 1 && defined(__AVX512BF16__) && BP_VECTOR_BYTES == 64
BP_VECTOR(f32, bp_dot_sums_);
BP_VECTOR(u32, bp_dot_pairs_);
BP_FN bp_dot_sums_ bp_dot_bf16_(u32 x, bp_dot_pairs_ y, bp_dot_sums_ z) {
  const bp_dot_pairs_ all = BP_VECTOR_ZERO(bp_dot_pairs_) + x;
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(z) : "v"(all), "v"(y)); /* the builtin's types depend on the compiler's version */
  return z;
}
#define BP_VECTOR_DOT_BF16(x, y, z) bp_dot_bf16_(x, y, z)
#endif

#define BP_ATOMIC_ADD_I32(p, v) ((void)__atomic_fetch_add((p), (i32)(v), __ATOMIC_RELAXED))
#define BP_ATOMIC_ADD_I64(p, v) ((void)__atomic_fetch_add((p), (i64)(v), __ATOMIC_RELAXED))
#define BP_ATOMIC_ADD_F32(p, v) bp_atomic_add_f32((p), (v))
#define BP_ATOMIC_CAS_32(p, expected, desired) bp_atomic_cas_32((p), (expected), (desired))
#define BP_ATOMIC_CAS_64(p, expected, desired) bp_atomic_cas_64((p), (expected), (desired))
BP_FN u32 bp_atomic_cas_32(u32* p, u32 expected, u32 desired) {
  __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
BP_FN u64 bp_atomic_cas_64(u64* p, u64 expected, u64 desired) {
  __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
BP_FN void bp_atomic_add_f32(f32* p, f32 v) {
  u32 seen = __atomic_load_n((u32*)p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n((u32*)p, &seen, bp_as_u32(bp_as_f32(seen) + v), 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

#if !BP_HAS_F64
#define f64 float64_of_a_target_without_it
#endif
)prelude";

/// The whole of it, without the first line feed.
inline std::string make_prelude() { return kPreludeText + 1 + each_pointer() + kTransposeText; }

}  // namespace backplane::driver::sim
