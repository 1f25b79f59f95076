// drivers/spirv/prelude.cpp: the words of the kernel dialect (docs/dialect.md) in those that the parser knows.
#include "composed.h"
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
)prelude";

}  // namespace

std::string float64_words() { return std::string(kFloat64Text + 1) + (kFloat64MoreText + 1); }

std::string prelude() { return std::string(kText + 1) + (kComposedText + 1) + float64_words(); }

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
  define(facts.exact_fma64, "__BP_EXACT_FMA64");
  return out;
}

}  // namespace backplane::driver::spirv
