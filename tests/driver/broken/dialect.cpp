// tests/driver/broken/dialect.cpp: defects of the family dialect: preludes of the simulated device with one wrong word.
#include "shim.h"

namespace broken {
namespace {

// The prelude with a few lines more.
void add_to_prelude(Shim& s, const char* lines) {
  s.text = lines;
  s.compiler.prelude = [](void* self, const char* target, const char** out) {
    const char* text = nullptr;
    const int32_t status = INNER_GROUP(of(self).in_compiler, prelude, target, &text);
    if (status != BP_OK) return status;
    std::lock_guard lock(of(self).mutex);
    static std::map<std::string, std::string> whole;  // by target: what was given stays
    std::string& known = whole[target];
    if (known.empty()) known = text + of(self).text;
    *out = known.c_str();
    return status;
  };
}

// Groups of at least 4 items can shuffle in fours.
void claim_subgroups(Shim& s) {
  s.compiler.target = [](void* self, int32_t device, bp_target_properties* out) {
    const int32_t status = INNER_GROUP(of(self).in_compiler, target, device, out);
    if (status == BP_OK && out->struct_size == sizeof *out) out->subgroup_size = 4;
    return status;
  };
}

}  // namespace

#define PRELUDE(lines) [](Shim& s) { add_to_prelude(s, lines); }

void add_dialect_defects(Defects& d) {
  d["dialect.integers"] = PRELUDE("#define i8 u8\n");
  d["dialect.overflow"] = PRELUDE("#pragma GCC optimize (\"no-wrapv\")\n");
  d["dialect.floats"] = PRELUDE(
      "#undef bp_rint\n"
      "#define bp_rint(x) bp_floor((x) + 0.5f)\n");
  d["dialect.doubles"] = PRELUDE(
      "#undef bp_erf64\n"
      "#define bp_erf64(x) ((f64)__builtin_erff((f32)(x)))\n");
  d["dialect.natives"] = PRELUDE(
      "#define BP_NATIVE_BF16\n"
      "BP_FN f32 bp_bf16_to_f32(u16 x) { return bp_as_f32((u32)x << 16); }\n"
      "BP_FN u16 bp_f32_to_bf16(f32 x) { return (u16)(bp_as_u32(x) >> 16); }\n");
  d["dialect.rows"] = PRELUDE(
      "#ifndef BP_NATIVE_F16_ROWS\n"
      "#define BP_NATIVE_F16_ROWS\n"
      "#endif\n"
      "BP_FN f32 broken_widened(u16 x) {\n"
      "  return bp_as_f32(bp_as_u32(bp_as_f32((u32)(x & 0x7fff) << 13) * 0x1p112f) | (u32)(x & 0x8000) << 16);\n"
      "}\n"
      "#define bp_f16_row_to_f32(to, from, count) \\\n"
      "  for (i32 k_ = 0; k_ < (count); ++k_) (to)[k_] = broken_widened((from)[k_])\n");
  d["dialect.vectors"] = PRELUDE(
      "#undef BP_TRANSPOSE\n"
      "#define BP_TRANSPOSE(to, step, from, pitch, rows, depth) \\\n"
      "  for (i32 k_ = 0; k_ < (depth); ++k_) for (i32 r_ = 0; r_ < (rows); ++r_) (to)[k_ * (rows) + r_] = (from)[r_ * (pitch) + k_]\n");
  d["dialect.groups"] = PRELUDE(
      "#undef BP_GROUPS\n"
      "#define BP_GROUPS(d) ((i32)bp_grid_[0])\n");
  d["dialect.local"] = PRELUDE(  // with items=4
      "#undef BP_BARRIER\n"
      "#define BP_BARRIER() ((void)0)\n");
  d["dialect.launches"] = PRELUDE(
      "#undef BP_LOCAL_ARRAY\n"
      "#define BP_LOCAL_ARRAY(T, name, n) static T name[n] __attribute__((aligned(64)))\n");
  d["dialect.atomics"] = PRELUDE(
      "#undef BP_ATOMIC_ADD_F32\n"
      "#define BP_ATOMIC_ADD_F32(p, v) (*(p) = (v))\n");
  d["dialect.shuffle"] = [](Shim& s) {  // with items=4
    claim_subgroups(s);
    add_to_prelude(s, "#define BP_SHUFFLE_XOR(x, mask) (x)\n");
  };
  // A compiler that gets a comparison of an i64 with BP_ITEM wrong.
  d["dialect.loops"] = instead<&bp_compiler::compile, [](Shim& s, const bp_compile_request* request, bp_compile_result* out) {
    std::string source = request->source;
    for (size_t at = 0; (at = source.find("<= BP_ITEM", at)) != std::string::npos;) source[at] = '>';
    bp_compile_request changed = *request;
    changed.source = source.c_str();
    return INNER_GROUP(s.in_compiler, compile, &changed, out);
  }>;
  d["dialect.functions"] = PRELUDE(
      "#undef BP_UNROLL\n"
      "#define BP_UNROLL if (0)\n");
  d["dialect.arguments"] = PRELUDE(
      "#undef BP_EACH_16\n"
      "#define BP_EACH_16(X) BP_EACH_15(X), X(14)\n");
  d["dialect.assertions"] = PRELUDE(
      "#undef BP_ASSERT\n"
      "#define BP_ASSERT(condition) ((condition) ? (void)0 : bp_device.fail(__LINE__, #condition))\n");
  // What no compiler takes.
  d["missing_word"] = PRELUDE(
      "#undef bp_copysign\n"
      "#define bp_copysign(x, y) no_such_name\n");
  // Sound, with every word that a prelude may have and the simulated device's has not.
  d["every_word"] = [](Shim& s) {
    claim_subgroups(s);
    add_to_prelude(s,
                   "#define BP_SHUFFLE_XOR(x, mask)                                              \\\n"
                   "  __extension__({                                                            \\\n"
                   "    u32* const all_ = (u32*)bp_device.local(sizeof(u32) * BP_GROUP, __LINE__);\\\n"
                   "    all_[BP_ITEM] = (x);                                                     \\\n"
                   "    BP_BARRIER();                                                            \\\n"
                   "    const u32 seen_ = all_[BP_ITEM ^ (mask)];                                \\\n"
                   "    BP_BARRIER();                                                            \\\n"
                   "    seen_;                                                                   \\\n"
                   "  })\n"
                   "#define BP_NATIVE_F16\n"
                   "BP_FN f32 bp_f16_to_f32(u16 x) {\n"
                   "  const u32 sign = (u32)(x & 0x8000) << 16, rest = (u32)(x & 0x7fff) << 13;\n"
                   "  if ((x & 0x7c00) == 0x7c00) return bp_as_f32(sign | 0x7f800000u | rest);\n"
                   "  return bp_as_f32(sign | bp_as_u32(bp_as_f32(rest) * 0x1p112f));\n"
                   "}\n"
                   "BP_FN u16 bp_f32_to_f16(f32 x) {\n"
                   "  const u32 bits = bp_as_u32(x) & 0x7fffffffu, sign = bp_as_u32(x) >> 16 & 0x8000u;\n"
                   "  if (bits > 0x7f800000u) return 0x7e00;\n"
                   "  if (bits < 0x38800000u) return (u16)(sign | (u32)bp_rint(bp_fabs(x) * 0x1p24f));\n"
                   "  const u32 near = ((bits + 0xfffu + (bits >> 13 & 1u)) >> 13) - (112u << 10);\n"
                   "  return (u16)(sign | (near < 0x7c00u ? near : 0x7c00u));\n"
                   "}\n"
                   "#define BP_NATIVE_BF16\n"
                   "BP_FN f32 bp_bf16_to_f32(u16 x) { return bp_as_f32((u32)x << 16); }\n"
                   "BP_FN u16 bp_f32_to_bf16(f32 x) {\n"
                   "  const u32 bits = bp_as_u32(x);\n"
                   "  return x != x ? 0x7fff : (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);\n"
                   "}\n"
                   "#define BP_NATIVE_MATH\n"
                   "#define bp_exp __builtin_expf\n"
                   "#define bp_exp2 __builtin_exp2f\n"
                   "#define bp_expm1 __builtin_expm1f\n"
                   "#define bp_log __builtin_logf\n"
                   "#define bp_log2 __builtin_log2f\n"
                   "#define bp_log10 __builtin_log10f\n"
                   "#define bp_log1p __builtin_log1pf\n"
                   "#define bp_sin __builtin_sinf\n"
                   "#define bp_cos __builtin_cosf\n"
                   "#define bp_tan __builtin_tanf\n"
                   "#define bp_asin __builtin_asinf\n"
                   "#define bp_acos __builtin_acosf\n"
                   "#define bp_atan __builtin_atanf\n"
                   "#define bp_atan2 __builtin_atan2f\n"
                   "#define bp_sinh __builtin_sinhf\n"
                   "#define bp_cosh __builtin_coshf\n"
                   "#define bp_tanh __builtin_tanhf\n"
                   "#define bp_asinh __builtin_asinhf\n"
                   "#define bp_acosh __builtin_acoshf\n"
                   "#define bp_atanh __builtin_atanhf\n"
                   "#define bp_pow __builtin_powf\n"
                   "#define bp_erf __builtin_erff\n"
                   "#define bp_erfc __builtin_erfcf\n");
  };
}

#undef PRELUDE

}  // namespace broken
