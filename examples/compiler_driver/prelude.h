/* prelude.h: the words of the kernel dialect (docs/dialect.md) in C, for groups of one item. compiler.c joins the lines.
 *
 * An item is the whole group: a barrier is nothing, and local arrays lie on the stack. No two kernels run at once on this device, so
 * atomics are plain arithmetic. */
/* clang-format off */
#define F32(name) "#define bp_" #name " __builtin_" #name "f"
#define F64(word, name) "#define bp_" #word " __builtin_" #name
#define P(n, before) "#define BP_POINTERS_" #n " BP_POINTERS_" #before ", (void*)p[" #before "]"

static const char* const prelude_lines[] = {
    "#if BP_GROUP != 1",
    "#error a group of this device has one item",
    "#endif",
    "typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;",
    "typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;",
    "typedef float f32; typedef double f64;",
    "#define BP_GLOBAL",
    "#define BP_LOCAL",
    "#define BP_RESTRICT restrict",
    "#define BP_FN static inline __attribute__((always_inline))",

    /* What compiler.c finds in the library: `kernel`, and the place of `fail_kernel`. bp_run_<name> takes a launch's arguments apart. */
    "#define BP_EXPORTED __attribute__((visibility(\"default\"), used))",
    "typedef struct { u32 pointers, value_bytes; void (*run)(const u64* p, const u32* at, const u32* grid); } bp_kernel;",
    "BP_EXPORTED void (*bp_fail)(u32 line);",
    "#define BP_KERNEL(name, pointers, Params, ...) BP_KERNEL_OF(name, pointers, Params, __VA_ARGS__)",
    /* Inlined: GCC 12 misplaces stores to a local array beside those to a pointer that is an argument. */
    "#define BP_KERNEL_OF(name, n, Params, ...) \\",
    "  BP_FN void bp_body_##name(__VA_ARGS__, const Params bp_arg, const u32* restrict bp_at_, const u32* restrict bp_grid_); \\",
    "  static void bp_run_##name(const u64* p, const u32* at, const u32* grid) { \\",
    "    bp_body_##name(BP_POINTERS_##n, *(const Params*)(p + n), at, grid); \\",
    "  } \\",
    "  BP_EXPORTED const bp_kernel bp_kernel_##name = {n, sizeof(Params), bp_run_##name}; \\",
    "  BP_FN void bp_body_##name(__VA_ARGS__, const Params bp_arg, const u32* restrict bp_at_, const u32* restrict bp_grid_)",
    "#define BP_POINTERS_1 (void*)p[0]",
    P(2, 1), P(3, 2), P(4, 3), P(5, 4), P(6, 5), P(7, 6), P(8, 7), P(9, 8), P(10, 9), P(11, 10), P(12, 11), P(13, 12), P(14, 13),
    P(15, 14), P(16, 15), P(17, 16), P(18, 17), P(19, 18), P(20, 19), P(21, 20), P(22, 21), P(23, 22), P(24, 23), P(25, 24), P(26, 25),
    P(27, 26), P(28, 27), P(29, 28), P(30, 29), P(31, 30), P(32, 31), P(33, 32), P(34, 33), P(35, 34), P(36, 35), P(37, 36), P(38, 37),
    P(39, 38), P(40, 39), P(41, 40), P(42, 41), P(43, 42), P(44, 43), P(45, 44), P(46, 45), P(47, 46), P(48, 47), P(49, 48), P(50, 49),
    P(51, 50), P(52, 51), P(53, 52), P(54, 53), P(55, 54), P(56, 55), P(57, 56), P(58, 57), P(59, 58), P(60, 59), P(61, 60), P(62, 61),
    P(63, 62), P(64, 63),
    "#define BP_ITEM 0",
    "#define BP_GROUP_ID(d) ((i32)bp_at_[d])",
    "#define BP_GROUPS(d) ((i32)bp_grid_[d])",
    "#define BP_LOCAL_ARRAY(T, name, n) T name[n]",
    "#define BP_BARRIER() ((void)0)",
    "#define BP_UNROLL",
    "#define BP_IVDEP",
    /* GCC 12 takes the mask of a comparison for its value where that is the place which a loop reads. */
    "#define BP_OPAQUE_ZERO ({ i64 zero_ = 0; __asm__(\"\" : \"+r\"(zero_)); zero_; })",
    "#ifdef BP_DEBUG",
    "#define BP_ASSERT(condition) ((condition) ? (void)0 : bp_fail(__LINE__))",
    "#else",
    "#define BP_ASSERT(condition) ((void)0)",
    "#endif",

    "BP_FN u32 bp_as_u32(f32 x) { union { f32 f; u32 u; } both = {.f = x}; return both.u; }",
    "BP_FN f32 bp_as_f32(u32 x) { union { f32 f; u32 u; } both = {.u = x}; return both.f; }",
    "BP_FN u64 bp_as_u64(f64 x) { union { f64 f; u64 u; } both = {.f = x}; return both.u; }",
    "BP_FN f64 bp_as_f64(u64 x) { union { f64 f; u64 u; } both = {.u = x}; return both.f; }",
    "#define BP_INFINITY __builtin_inff()",
    "#define BP_NAN __builtin_nanf(\"\")",
    F32(sqrt), F32(fabs), F32(floor), F32(ceil), F32(trunc), F32(rint), F32(fma), F32(copysign),
    F64(sqrt64, sqrt), F64(fabs64, fabs), F64(floor64, floor), F64(ceil64, ceil), F64(trunc64, trunc), F64(rint64, rint),
    F64(fma64, fma), F64(copysign64, copysign), F64(exp64, exp), F64(exp2_64, exp2), F64(expm1_64, expm1), F64(log64, log),
    F64(log2_64, log2), F64(log10_64, log10), F64(log1p64, log1p), F64(sin64, sin), F64(cos64, cos), F64(tan64, tan),
    F64(asin64, asin), F64(acos64, acos), F64(atan64, atan), F64(atan2_64, atan2), F64(sinh64, sinh), F64(cosh64, cosh),
    F64(tanh64, tanh), F64(asinh64, asinh), F64(acosh64, acosh), F64(atanh64, atanh), F64(pow64, pow), F64(fmod64, fmod),
    F64(hypot64, hypot), F64(erf64, erf), F64(erfc64, erfc), F64(lgamma64, lgamma),

    "#define BP_ATOMIC_ADD_I32(p, v) ((void)(*(p) += (v)))",
    "#define BP_ATOMIC_ADD_I64(p, v) ((void)(*(p) += (v)))",
    "#define BP_ATOMIC_ADD_F32(p, v) ((void)(*(p) += (v)))",
    "#define BP_ATOMIC_CAS_32 bp_swap_32",
    "#define BP_ATOMIC_CAS_64 bp_swap_64",
    "BP_FN u32 bp_swap_32(u32* p, u32 expected, u32 desired) { u32 was = *p; if (was == expected) *p = desired; return was; }",
    "BP_FN u64 bp_swap_64(u64* p, u64 expected, u64 desired) { u64 was = *p; if (was == expected) *p = desired; return was; }",
};
