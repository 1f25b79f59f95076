// check_driver/checks_dialect_kernels.cpp: what a kernel is made of: functions, arguments, assertions.
#include "words.h"

namespace backplane::check {
namespace dialect_impl {

void functions(Context& c) {
  const char* words = "BP_FN, BP_GLOBAL, BP_LOCAL, BP_UNROLL, BP_IVDEP";
  const Compiler compiler(c, 0);
  const Tile tile = compiler.tile();
  const Module module = load(c, compiler, tile, words, R"(
typedef struct { i64 n; i32 factor; i32 unused; } Params;
typedef struct { i32 low; i32 high; } Range;
BP_FN i32 twice(i32 x) { return 2 * x; }
BP_FN i32 cut(i32 x, Range range) { return x < range.low ? range.low : x > range.high ? range.high : x; }
BP_FN Range around(i32 middle) { Range range; range.low = middle - 50; range.high = middle + 50; return range; }
BP_FN i32 total(BP_GLOBAL const i32* x, i64 first, i32 n) {
  i32 sum = 0;
  BP_UNROLL for (i32 i = 0; i < n; ++i) sum += x[first + i];
  return sum;
}
BP_FN void put(BP_LOCAL i32* to, i32 i, i32 value) { to[i] = value; }
BP_FN i32 take(BP_LOCAL const i32* from, i32 i) { return from[i]; }
BP_FN void store(BP_GLOBAL i32* to, i64 i, i32 value) { to[i] = twice(value) + 1; }
BP_KERNEL(functions, 2, Params, BP_GLOBAL i32* BP_RESTRICT out, BP_GLOBAL const i32* BP_RESTRICT in) {
  BP_LOCAL_ARRAY(i32, s, BP_GROUP * BP_PER_ITEM);
  const i64 first = (i64)BP_GROUP_ID(0) * BP_GROUP * BP_PER_ITEM;
  const i32 all = total(in, first, BP_GROUP * BP_PER_ITEM);
  BP_IVDEP for (i32 j = 0; j < BP_PER_ITEM; ++j) {
    const i32 e = j * BP_GROUP + BP_ITEM;
    put(s, e, cut(bp_arg.factor * in[first + e], around(100)));
  }
  BP_BARRIER();
  BP_UNROLL for (i32 j = 0; j < BP_PER_ITEM; ++j) {
    const i32 e = j * BP_GROUP + BP_ITEM;
    store(out, first + e, take(s, BP_GROUP * BP_PER_ITEM - 1 - e) + all);
  }
}
)");
  struct Params {
    int64_t n;
    int32_t factor, unused;
  };
  std::vector<int32_t> in(3 * tile.size()), want(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 13 % 71);
  for (size_t first = 0; first < in.size(); first += tile.size()) {
    int32_t all = 0;
    for (size_t e = 0; e < tile.size(); ++e) all += in[first + e];
    for (size_t e = 0; e < tile.size(); ++e) want[first + e] = 2 * (std::clamp(3 * in[first + tile.size() - 1 - e], 50, 150) + all) + 1;
  }
  const DeviceArray<int32_t> out(c, 0, in.size()), input(c, 0, in);
  module.run("functions", tile, 3, {out.address(), input.address()}, Params{static_cast<int64_t>(in.size()), 3, 0});
  same(c, out.get(), want, tile, words, words_rule);
}

// A kernel of 16 pointers, as many as the library uses, and of one; a struct with a member of each type.
void arguments_of(Context& c) {
  const char* words = "BP_KERNEL";
  const char* rule = "BP_KERNEL(name, pointers, Params, ...): its `pointers` parameters; Params: a struct type, passed by value";
  const Compiler compiler(c, 0);
  const Tile tile = compiler.tile();
  std::string parameters = "BP_GLOBAL i64* BP_RESTRICT out", sum = "0";
  for (int p = 1; p < 16; ++p) {
    parameters += format(", BP_GLOBAL const %s* BP_RESTRICT p%d", p % 3 == 0 ? "i64" : p % 3 == 1 ? "i32" : "u8", p);
    sum += format(" + %d * (i64)p%d[i]", p * p, p);
  }
  const Module module = load(c, compiler, tile, words, R"(
typedef struct { i64 n; } Count;
typedef struct { u64 a; i32 b; f32 c; i64 d; u32 e; u32 f;
#if BP_HAS_F64
  f64 g;
#else
  i64 g;
#endif
} Mixed;
BP_KERNEL(sixteen, 16, Count, )" + parameters + R"() {
  EACH(i, bp_arg.n) out[i] = )" + sum + R"(;
}
BP_KERNEL(one, 1, Mixed, BP_GLOBAL i64* BP_RESTRICT out) {
  if (BP_ITEM == 0) {
    out[0] = (i64)bp_arg.a; out[1] = bp_arg.b; out[2] = (i64)(4.0f * bp_arg.c); out[3] = bp_arg.d; out[4] = bp_arg.e; out[5] = bp_arg.f;
    out[6] = (i64)bp_arg.g;
  }
}
)");
  constexpr size_t n = 333;
  const DeviceArray<int64_t> out(c, 0, n);
  std::vector<uint64_t> pointers = {out.address()};
  std::vector<int64_t> want(n);
  const auto add = [&](auto type, size_t p) {
    using T = decltype(type);
    std::vector<T> values(n);
    for (size_t i = 0; i < n; ++i) {
      values[i] = static_cast<T>(i * p % 101);
      want[i] += static_cast<int64_t>(p * p) * static_cast<int64_t>(values[i]);
    }
    pointers.push_back(DeviceArray<T>(c, 0, values).address());
  };
  for (size_t p = 1; p < 16; ++p) {
    if (p % 3 == 0) add(int64_t(), p);
    if (p % 3 == 1) add(int32_t(), p);
    if (p % 3 == 2) add(uint8_t(), p);
  }
  module.run("sixteen", tile, tile.groups(n), pointers, Count{n});
  same(c, out.get(), want, tile, words, rule);

  struct Mixed {
    uint64_t a;
    int32_t b;
    float c;
    int64_t d;
    uint32_t e, f;
    uint64_t g;
  };
  const Mixed mixed = {
      uint64_t{1} << 63, -5, -2.25f, -(int64_t{1} << 40), 0xffffffffu, 6, compiler.has_f64() ? bits<uint64_t>(-7.5) : uint64_t(-7)};
  module.run("one", tile, 1, {out.address()}, mixed);
  same<int64_t>(c, out.get(), {INT64_MIN, -5, -9, -(int64_t{1} << 40), 0xffffffffll, 6, -7}, tile, "bp_arg", rule);
}

// Assertions that hold, with BP_COMPILE_DEBUG; and without it one that does not. module.fault is about one that does not with it.
void assertions(Context& c) {
  const Compiler compiler(c, 0);
  const Tile tile = compiler.tile();
  const std::string kernel = R"(
typedef struct { i64 n; } Count;
BP_KERNEL(asserting, 1, Count, BP_GLOBAL i32* BP_RESTRICT out) {
  BP_ASSERT(bp_arg.n > 0 && bp_arg.n <= 1000);
  EACH(i, 100) {
    if (i % 2 == 0)
      BP_ASSERT(i < bp_arg.n);
    else
      BP_ASSERT(bp_arg.n != 0);
    out[i] = (i32)i + 1;
  }
}
)";
  std::vector<int32_t> want(100);
  for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<int32_t>(i) + 1;
  for (const bool debug : {true, false}) {
    const char* what = debug ? "BP_ASSERT of what holds" : "BP_ASSERT without BP_COMPILE_DEBUG";
    named(what, [&] {
      const Module module = load(c, compiler, tile, what, kernel, debug ? BP_COMPILE_DEBUG : 0);
      const DeviceArray<int32_t> out(c, 0, want.size());
      module.run("asserting", tile, tile.groups(100), {out.address()}, Count{debug ? 100 : -5}, 1, "BP_ASSERT");
      same(c, out.get(), want, tile, what,
           "BP_ASSERT(condition): nothing, or with BP_COMPILE_DEBUG: the device faults if it does not hold");
    });
  }
}

}  // namespace dialect_impl
}  // namespace backplane::check
