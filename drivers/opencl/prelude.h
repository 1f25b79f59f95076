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
  BP_SIZED void name(BP_BUFFERS_##n, const Params bp_arg, const bp_offsets_##name bp_o) {             \
    bp_body_##name(BP_POINTERS_##n, bp_arg);                                                          \
  }                                                                                                   \
  BP_SIZED void bp_body_##name(__VA_ARGS__, const Params bp_arg)
#define BP_BUFFER(i) __global char* bp_p##i
#define BP_POINTER(i) (__global void*)(bp_p##i + bp_o.at[i])
#define BP_BUFFERS_1 BP_BUFFER(0)
#define BP_POINTERS_1 BP_POINTER(0)
#define BP_BUFFERS_2 BP_BUFFERS_1, BP_BUFFER(1)
#define BP_POINTERS_2 BP_POINTERS_1, BP_POINTER(1)
#define BP_BUFFERS_3 BP_BUFFERS_2, BP_BUFFER(2)
#define BP_POINTERS_3 BP_POINTERS_2, BP_POINTER(2)
#define BP_BUFFERS_4 BP_BUFFERS_3, BP_BUFFER(3)
#define BP_POINTERS_4 BP_POINTERS_3, BP_POINTER(3)
#define BP_BUFFERS_5 BP_BUFFERS_4, BP_BUFFER(4)
#define BP_POINTERS_5 BP_POINTERS_4, BP_POINTER(4)
#define BP_BUFFERS_6 BP_BUFFERS_5, BP_BUFFER(5)
#define BP_POINTERS_6 BP_POINTERS_5, BP_POINTER(5)
#define BP_BUFFERS_7 BP_BUFFERS_6, BP_BUFFER(6)
#define BP_POINTERS_7 BP_POINTERS_6, BP_POINTER(6)
#define BP_BUFFERS_8 BP_BUFFERS_7, BP_BUFFER(7)
#define BP_POINTERS_8 BP_POINTERS_7, BP_POINTER(7)
#define BP_BUFFERS_9 BP_BUFFERS_8, BP_BUFFER(8)
#define BP_POINTERS_9 BP_POINTERS_8, BP_POINTER(8)
#define BP_BUFFERS_10 BP_BUFFERS_9, BP_BUFFER(9)
#define BP_POINTERS_10 BP_POINTERS_9, BP_POINTER(9)
#define BP_BUFFERS_11 BP_BUFFERS_10, BP_BUFFER(10)
#define BP_POINTERS_11 BP_POINTERS_10, BP_POINTER(10)
#define BP_BUFFERS_12 BP_BUFFERS_11, BP_BUFFER(11)
#define BP_POINTERS_12 BP_POINTERS_11, BP_POINTER(11)
#define BP_BUFFERS_13 BP_BUFFERS_12, BP_BUFFER(12)
#define BP_POINTERS_13 BP_POINTERS_12, BP_POINTER(12)
#define BP_BUFFERS_14 BP_BUFFERS_13, BP_BUFFER(13)
#define BP_POINTERS_14 BP_POINTERS_13, BP_POINTER(13)
#define BP_BUFFERS_15 BP_BUFFERS_14, BP_BUFFER(14)
#define BP_POINTERS_15 BP_POINTERS_14, BP_POINTER(14)
#define BP_BUFFERS_16 BP_BUFFERS_15, BP_BUFFER(15)
#define BP_POINTERS_16 BP_POINTERS_15, BP_POINTER(15)
#define BP_BUFFERS_17 BP_BUFFERS_16, BP_BUFFER(16)
#define BP_POINTERS_17 BP_POINTERS_16, BP_POINTER(16)
#define BP_BUFFERS_18 BP_BUFFERS_17, BP_BUFFER(17)
#define BP_POINTERS_18 BP_POINTERS_17, BP_POINTER(17)
#define BP_BUFFERS_19 BP_BUFFERS_18, BP_BUFFER(18)
#define BP_POINTERS_19 BP_POINTERS_18, BP_POINTER(18)
#define BP_BUFFERS_20 BP_BUFFERS_19, BP_BUFFER(19)
#define BP_POINTERS_20 BP_POINTERS_19, BP_POINTER(19)
#define BP_BUFFERS_21 BP_BUFFERS_20, BP_BUFFER(20)
#define BP_POINTERS_21 BP_POINTERS_20, BP_POINTER(20)
#define BP_BUFFERS_22 BP_BUFFERS_21, BP_BUFFER(21)
#define BP_POINTERS_22 BP_POINTERS_21, BP_POINTER(21)
#define BP_BUFFERS_23 BP_BUFFERS_22, BP_BUFFER(22)
#define BP_POINTERS_23 BP_POINTERS_22, BP_POINTER(22)
#define BP_BUFFERS_24 BP_BUFFERS_23, BP_BUFFER(23)
#define BP_POINTERS_24 BP_POINTERS_23, BP_POINTER(23)
#define BP_BUFFERS_25 BP_BUFFERS_24, BP_BUFFER(24)
#define BP_POINTERS_25 BP_POINTERS_24, BP_POINTER(24)
#define BP_BUFFERS_26 BP_BUFFERS_25, BP_BUFFER(25)
#define BP_POINTERS_26 BP_POINTERS_25, BP_POINTER(25)
#define BP_BUFFERS_27 BP_BUFFERS_26, BP_BUFFER(26)
#define BP_POINTERS_27 BP_POINTERS_26, BP_POINTER(26)
#define BP_BUFFERS_28 BP_BUFFERS_27, BP_BUFFER(27)
#define BP_POINTERS_28 BP_POINTERS_27, BP_POINTER(27)
#define BP_BUFFERS_29 BP_BUFFERS_28, BP_BUFFER(28)
#define BP_POINTERS_29 BP_POINTERS_28, BP_POINTER(28)
#define BP_BUFFERS_30 BP_BUFFERS_29, BP_BUFFER(29)
#define BP_POINTERS_30 BP_POINTERS_29, BP_POINTER(29)
#define BP_BUFFERS_31 BP_BUFFERS_30, BP_BUFFER(30)
#define BP_POINTERS_31 BP_POINTERS_30, BP_POINTER(30)
#define BP_BUFFERS_32 BP_BUFFERS_31, BP_BUFFER(31)
#define BP_POINTERS_32 BP_POINTERS_31, BP_POINTER(31)
#define BP_BUFFERS_33 BP_BUFFERS_32, BP_BUFFER(32)
#define BP_POINTERS_33 BP_POINTERS_32, BP_POINTER(32)
#define BP_BUFFERS_34 BP_BUFFERS_33, BP_BUFFER(33)
#define BP_POINTERS_34 BP_POINTERS_33, BP_POINTER(33)
#define BP_BUFFERS_35 BP_BUFFERS_34, BP_BUFFER(34)
#define BP_POINTERS_35 BP_POINTERS_34, BP_POINTER(34)
#define BP_BUFFERS_36 BP_BUFFERS_35, BP_BUFFER(35)
#define BP_POINTERS_36 BP_POINTERS_35, BP_POINTER(35)
#define BP_BUFFERS_37 BP_BUFFERS_36, BP_BUFFER(36)
#define BP_POINTERS_37 BP_POINTERS_36, BP_POINTER(36)
#define BP_BUFFERS_38 BP_BUFFERS_37, BP_BUFFER(37)
#define BP_POINTERS_38 BP_POINTERS_37, BP_POINTER(37)
#define BP_BUFFERS_39 BP_BUFFERS_38, BP_BUFFER(38)
#define BP_POINTERS_39 BP_POINTERS_38, BP_POINTER(38)
#define BP_BUFFERS_40 BP_BUFFERS_39, BP_BUFFER(39)
#define BP_POINTERS_40 BP_POINTERS_39, BP_POINTER(39)
#define BP_BUFFERS_41 BP_BUFFERS_40, BP_BUFFER(40)
#define BP_POINTERS_41 BP_POINTERS_40, BP_POINTER(40)
#define BP_BUFFERS_42 BP_BUFFERS_41, BP_BUFFER(41)
#define BP_POINTERS_42 BP_POINTERS_41, BP_POINTER(41)
#define BP_BUFFERS_43 BP_BUFFERS_42, BP_BUFFER(42)
#define BP_POINTERS_43 BP_POINTERS_42, BP_POINTER(42)
#define BP_BUFFERS_44 BP_BUFFERS_43, BP_BUFFER(43)
#define BP_POINTERS_44 BP_POINTERS_43, BP_POINTER(43)
#define BP_BUFFERS_45 BP_BUFFERS_44, BP_BUFFER(44)
#define BP_POINTERS_45 BP_POINTERS_44, BP_POINTER(44)
#define BP_BUFFERS_46 BP_BUFFERS_45, BP_BUFFER(45)
#define BP_POINTERS_46 BP_POINTERS_45, BP_POINTER(45)
#define BP_BUFFERS_47 BP_BUFFERS_46, BP_BUFFER(46)
#define BP_POINTERS_47 BP_POINTERS_46, BP_POINTER(46)
#define BP_BUFFERS_48 BP_BUFFERS_47, BP_BUFFER(47)
#define BP_POINTERS_48 BP_POINTERS_47, BP_POINTER(47)
#define BP_BUFFERS_49 BP_BUFFERS_48, BP_BUFFER(48)
#define BP_POINTERS_49 BP_POINTERS_48, BP_POINTER(48)
#define BP_BUFFERS_50 BP_BUFFERS_49, BP_BUFFER(49)
#define BP_POINTERS_50 BP_POINTERS_49, BP_POINTER(49)
#define BP_BUFFERS_51 BP_BUFFERS_50, BP_BUFFER(50)
#define BP_POINTERS_51 BP_POINTERS_50, BP_POINTER(50)
#define BP_BUFFERS_52 BP_BUFFERS_51, BP_BUFFER(51)
#define BP_POINTERS_52 BP_POINTERS_51, BP_POINTER(51)
#define BP_BUFFERS_53 BP_BUFFERS_52, BP_BUFFER(52)
#define BP_POINTERS_53 BP_POINTERS_52, BP_POINTER(52)
#define BP_BUFFERS_54 BP_BUFFERS_53, BP_BUFFER(53)
#define BP_POINTERS_54 BP_POINTERS_53, BP_POINTER(53)
#define BP_BUFFERS_55 BP_BUFFERS_54, BP_BUFFER(54)
#define BP_POINTERS_55 BP_POINTERS_54, BP_POINTER(54)
#define BP_BUFFERS_56 BP_BUFFERS_55, BP_BUFFER(55)
#define BP_POINTERS_56 BP_POINTERS_55, BP_POINTER(55)
#define BP_BUFFERS_57 BP_BUFFERS_56, BP_BUFFER(56)
#define BP_POINTERS_57 BP_POINTERS_56, BP_POINTER(56)
#define BP_BUFFERS_58 BP_BUFFERS_57, BP_BUFFER(57)
#define BP_POINTERS_58 BP_POINTERS_57, BP_POINTER(57)
#define BP_BUFFERS_59 BP_BUFFERS_58, BP_BUFFER(58)
#define BP_POINTERS_59 BP_POINTERS_58, BP_POINTER(58)
#define BP_BUFFERS_60 BP_BUFFERS_59, BP_BUFFER(59)
#define BP_POINTERS_60 BP_POINTERS_59, BP_POINTER(59)
#define BP_BUFFERS_61 BP_BUFFERS_60, BP_BUFFER(60)
#define BP_POINTERS_61 BP_POINTERS_60, BP_POINTER(60)
#define BP_BUFFERS_62 BP_BUFFERS_61, BP_BUFFER(61)
#define BP_POINTERS_62 BP_POINTERS_61, BP_POINTER(61)
#define BP_BUFFERS_63 BP_BUFFERS_62, BP_BUFFER(62)
#define BP_POINTERS_63 BP_POINTERS_62, BP_POINTER(62)
#define BP_BUFFERS_64 BP_BUFFERS_63, BP_BUFFER(63)
#define BP_POINTERS_64 BP_POINTERS_63, BP_POINTER(63)
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

}  // namespace backplane::driver::opencl
