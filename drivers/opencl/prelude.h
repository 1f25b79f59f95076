// drivers/opencl/prelude.h: the words of the kernel dialect (docs/dialect.md) in OpenCL C 1.2.
//
// The driver builds with -cl-std=CL1.2, and where the device has CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT with
// -cl-fp32-correctly-rounded-divide-sqrt: a quotient may be off by 2.5 ulp without it. OpenCL lets a function of f32 be off by up to 16
// ulp, so that those of the core are used; of f64 it promises nothing for lgamma.
//
// It may define BP_SUBGROUP, the number of items that shuffle, and BP_BUFFERS: device memory is then buffer objects, and since an argument
// cannot point inside one, a kernel takes offsets behind its value and calls its body, a kernel of its own for the sake of its local
// arrays. What a called kernel's local arrays are is left to the implementation: PoCL makes those of a function `kernel.anything` the
// group's own, and all others one array of the program, which launches at the same time share; hence the body's name there.
#pragma once

#include "../engine/prelude.h"
#include "../engine/transpose.h"

namespace backplane::driver::opencl {

constexpr const char* kPreludeText = R"cl(
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef float f32;

#define BP_GLOBAL __global
#define BP_LOCAL __local
#define BP_RESTRICT restrict
#define BP_FN static inline __attribute__((always_inline))

#define BP_SIZED __kernel __attribute__((reqd_work_group_size(BP_GROUP, 1, 1)))
#if BP_BUFFERS
#ifdef POCL_DEVICE_ADDRESS_BITS
#define BP_BODY_NAME(name) __asm__(#name ".body")
#else
#define BP_BODY_NAME(name)
#endif
#define BP_KERNEL(name, pointers, Params, ...) BP_KERNEL_OF(name, pointers, Params, __VA_ARGS__)
#define BP_KERNEL_OF(name, n, Params, ...)                                                           \
  typedef struct { u64 at[n]; } bp_offsets_##name;                                                    \
  BP_SIZED void bp_body_##name(__VA_ARGS__, const Params bp_arg) BP_BODY_NAME(name);                  \
  BP_SIZED void name(BP_EACH_##n(BP_BUFFER), const Params bp_arg, const bp_offsets_##name bp_o) {     \
    bp_body_##name(BP_EACH_##n(BP_POINTER), bp_arg);                                                  \
  }                                                                                                   \
  BP_SIZED void bp_body_##name(__VA_ARGS__, const Params bp_arg)
#define BP_BUFFER(i) __global char* bp_p##i
#define BP_POINTER(i) (__global void*)(bp_p##i + bp_o.at[i])
#else
#define BP_KERNEL(name, pointers, Params, ...) BP_SIZED void name(__VA_ARGS__, const Params bp_arg)
#endif
#define BP_LOCAL_ARRAY(T, name, n) __local T name[n]
#if BP_GROUP == 1
#define BP_BARRIER() ((void)0)
#else
#define BP_BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif
#define BP_ITEM ((i32)get_local_id(0))
#define BP_GROUP_ID(d) ((i32)get_group_id(d))
#define BP_GROUPS(d) ((i32)get_num_groups(d))
#define BP_UNROLL _Pragma("unroll")
#define BP_IVDEP

/* clang takes OpenCL's vectors for registers, of any alignment, and contracts. */
#if BP_GROUP == 1 && defined __clang__
#define BP_VECTOR(T, name) typedef T name __attribute__((ext_vector_type(BP_VECTOR_BYTES / sizeof(T)), aligned(sizeof(T))))
#define BP_VECTOR_ZERO(name) ((name)(0))
#endif

BP_FN u32 bp_as_u32(f32 x) { return as_uint(x); }
BP_FN f32 bp_as_f32(u32 x) { return as_float(x); }
#define BP_INFINITY INFINITY
#define BP_NAN NAN

#define bp_sqrt(x) sqrt((f32)(x))
#define bp_fabs(x) fabs((f32)(x))
#define bp_floor(x) floor((f32)(x))
#define bp_ceil(x) ceil((f32)(x))
#define bp_trunc(x) trunc((f32)(x))
#define bp_rint(x) rint((f32)(x))
#define bp_fma(x, y, z) fma((f32)(x), (f32)(y), (f32)(z))
#define bp_copysign(x, y) copysign((f32)(x), (f32)(y))

#if BP_HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
BP_FN u64 bp_as_u64(f64 x) { return as_ulong(x); }
BP_FN f64 bp_as_f64(u64 x) { return as_double(x); }
#define bp_sqrt64(x) sqrt((f64)(x))
#define bp_fabs64(x) fabs((f64)(x))
#define bp_floor64(x) floor((f64)(x))
#define bp_ceil64(x) ceil((f64)(x))
#define bp_trunc64(x) trunc((f64)(x))
#define bp_rint64(x) rint((f64)(x))
#define bp_fma64(x, y, z) fma((f64)(x), (f64)(y), (f64)(z))
#define bp_copysign64(x, y) copysign((f64)(x), (f64)(y))
#define bp_exp64(x) exp((f64)(x))
#define bp_exp2_64(x) exp2((f64)(x))
#define bp_expm1_64(x) expm1((f64)(x))
#define bp_log64(x) log((f64)(x))
#define bp_log2_64(x) log2((f64)(x))
#define bp_log10_64(x) log10((f64)(x))
#define bp_log1p64(x) log1p((f64)(x))
#define bp_sin64(x) sin((f64)(x))
#define bp_cos64(x) cos((f64)(x))
#define bp_tan64(x) tan((f64)(x))
#define bp_asin64(x) asin((f64)(x))
#define bp_acos64(x) acos((f64)(x))
#define bp_atan64(x) atan((f64)(x))
#define bp_atan2_64(x, y) atan2((f64)(x), (f64)(y))
#define bp_sinh64(x) sinh((f64)(x))
#define bp_cosh64(x) cosh((f64)(x))
#define bp_tanh64(x) tanh((f64)(x))
#define bp_asinh64(x) asinh((f64)(x))
#define bp_acosh64(x) acosh((f64)(x))
#define bp_atanh64(x) atanh((f64)(x))
#define bp_pow64(x, y) pow((f64)(x), (f64)(y))
#define bp_fmod64(x, y) fmod((f64)(x), (f64)(y))
#define bp_hypot64(x, y) hypot((f64)(x), (f64)(y))
#define bp_erf64(x) erf((f64)(x))
#define bp_erfc64(x) erfc((f64)(x))
#define bp_lgamma64(x) lgamma((f64)(x))
#endif

/* BP_ATOMIC_ADD_I32, ADD_F32 and CAS_32 of every device; ADD_I64 and CAS_64 of one with cl_khr_int64_base_atomics. */
#define BP_ATOMIC_ADD_I32(p, v) ((void)atomic_add((volatile __global i32*)(p), (i32)(v)))
#define BP_ATOMIC_CAS_32(p, expected, desired) atomic_cmpxchg((volatile __global u32*)(p), (u32)(expected), (u32)(desired))
#define BP_ATOMIC_ADD_F32(p, v) bp_atomic_add_f32((p), (v))
BP_FN void bp_atomic_add_f32(__global f32* p, f32 v) {
  volatile __global u32* const bits = (volatile __global u32*)p;
  u32 expected;
  u32 seen = *bits;
  do {
    expected = seen;
    seen = atomic_cmpxchg(bits, expected, as_uint(as_float(expected) + v));
  } while (seen != expected);
}
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define BP_ATOMIC_ADD_I64(p, v) ((void)atom_add((volatile __global i64*)(p), (i64)(v)))
#define BP_ATOMIC_CAS_64(p, expected, desired) atom_cmpxchg((volatile __global u64*)(p), (u64)(expected), (u64)(desired))
#endif

#if BP_SUBGROUP
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define BP_SHUFFLE_XOR(x, mask) sub_group_shuffle_xor((u32)(x), (u32)(mask))
#endif
)cl";

/// The whole of it.
inline std::string make_prelude() { return kPreludeText + each_pointer() + kTransposeText; }

}  // namespace backplane::driver::opencl
