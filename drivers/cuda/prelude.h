// drivers/cuda/prelude.h: the words of the kernel dialect (docs/dialect.md) in CUDA C++, for NVRTC and nvcc.
#pragma once

namespace backplane::driver::cuda {

inline constexpr char kPrelude[] =
    R"prelude(/* The words of the kernel dialect in CUDA C++; no header is needed. It is compiled without -use_fast_math, and -ftz=false,
 * -prec-div=true and -prec-sqrt=true stay as they are. A kernel's name is as it stands in the source. CUDA's functions of f32 are right to
 * 4 ulp, and halves are one instruction. */

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;

#define BP_GLOBAL
#define BP_LOCAL
#define BP_RESTRICT __restrict__
#define BP_FN static __device__ __forceinline__

#define BP_KERNEL(name, pointers, Params, ...) extern "C" __global__ void __launch_bounds__(BP_GROUP) name(__VA_ARGS__, const Params bp_arg)
#define BP_LOCAL_ARRAY(T, name, n) __shared__ T name[n]
#define BP_BARRIER() __syncthreads()
#define BP_ITEM ((i32)threadIdx.x)
#define BP_GROUP_ID(d) ((i32)((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z))
#define BP_GROUPS(d) ((i32)((d) == 0 ? gridDim.x : (d) == 1 ? gridDim.y : gridDim.z))
#define BP_UNROLL _Pragma("unroll")
#define BP_IVDEP

/* The driver defines BP_DEBUG for BP_COMPILE_DEBUG. */
#ifdef BP_DEBUG
#define BP_ASSERT(condition) ((condition) ? (void)0 : __trap())
#else
#define BP_ASSERT(condition) ((void)0)
#endif

BP_FN u32 bp_as_u32(f32 x) { return __float_as_uint(x); }
BP_FN f32 bp_as_f32(u32 x) { return __uint_as_float(x); }
#define BP_INFINITY __int_as_float(0x7f800000)
#define BP_NAN __int_as_float(0x7fc00000)

#define bp_sqrt(x) sqrtf(x)
#define bp_fabs(x) fabsf(x)
#define bp_floor(x) floorf(x)
#define bp_ceil(x) ceilf(x)
#define bp_trunc(x) truncf(x)
#define bp_rint(x) rintf(x)
#define bp_fma(x, y, z) fmaf(x, y, z)
#define bp_copysign(x, y) copysignf(x, y)

#define BP_NATIVE_MATH
#define bp_exp(x) expf(x)
#define bp_exp2(x) exp2f(x)
#define bp_expm1(x) expm1f(x)
#define bp_log(x) logf(x)
#define bp_log2(x) log2f(x)
#define bp_log10(x) log10f(x)
#define bp_log1p(x) log1pf(x)
#define bp_sin(x) sinf(x)
#define bp_cos(x) cosf(x)
#define bp_tan(x) tanf(x)
#define bp_asin(x) asinf(x)
#define bp_acos(x) acosf(x)
#define bp_atan(x) atanf(x)
#define bp_atan2(x, y) atan2f(x, y)
#define bp_sinh(x) sinhf(x)
#define bp_cosh(x) coshf(x)
#define bp_tanh(x) tanhf(x)
#define bp_asinh(x) asinhf(x)
#define bp_acosh(x) acoshf(x)
#define bp_atanh(x) atanhf(x)
#define bp_pow(x, y) powf(x, y)
#define bp_erf(x) erff(x)
#define bp_erfc(x) erfcf(x)

#define BP_NATIVE_F16
BP_FN f32 bp_f16_to_f32(u16 x) {
  f32 result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x));
  return result;
}
BP_FN u16 bp_f32_to_f16(f32 x) {
  u16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(x));
  return result;
}

#if BP_HAS_F64
typedef double f64;
BP_FN u64 bp_as_u64(f64 x) { return (u64)__double_as_longlong(x); }
BP_FN f64 bp_as_f64(u64 x) { return __longlong_as_double((i64)x); }
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

/* All the atomics that there are. */
#define BP_ATOMIC_ADD_I32(p, v) ((void)atomicAdd((i32*)(p), (i32)(v)))
#define BP_ATOMIC_ADD_I64(p, v) ((void)atomicAdd((u64*)(p), (u64)(v)))
#define BP_ATOMIC_ADD_F32(p, v) ((void)atomicAdd((f32*)(p), (f32)(v)))
#define BP_ATOMIC_CAS_32(p, expected, desired) atomicCAS((u32*)(p), (u32)(expected), (u32)(desired))
#define BP_ATOMIC_CAS_64(p, expected, desired) atomicCAS((u64*)(p), (u64)(expected), (u64)(desired))

/* subgroup_size is 32; all items of the warp come by. */
#define BP_SHUFFLE_XOR(x, mask) __shfl_xor_sync(0xffffffffu, (u32)(x), (mask))
)prelude";

}  // namespace backplane::driver::cuda
