// check_driver/checks_dialect_vectors.cpp: several elements in a register, their dot products, and blocks that are transposed, where a
// prelude defines them.
#include "words.h"

namespace backplane::check {
namespace dialect_impl {
namespace {

constexpr char vector_rule[] =
    "BP_VECTOR: BP_VECTOR_BYTES of T in a register. + - * of two of them, and of one and a T, are elementwise; a pointer to T, in a local "
    "array or in global memory, may be cast to a pointer to it";
constexpr char fma_rule[] = "BP_VECTOR_FMA: x * y + z of a T and two such vectors, rounded once if T is f32 or f64";
constexpr char dot_rule[] =
    "BP_VECTOR_DOT_BF16: z plus the product of the bfloat16 in the low halves and that of those in the high ones, in f32, for a u32 and a "
    "vector of u32";
constexpr char transpose_rule[] =
    "BP_TRANSPOSE: to[k * step + r] = from[r * pitch + k] for r < rows and k < depth, for elements of 4 or 8 bytes in two local arrays";

constexpr int64_t room = 256;  // elements of an array

std::string replaced(std::string text, const std::vector<std::pair<std::string, std::string>>& words) {
  for (const auto& [word, replacement] : words) {
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += replacement.size()) {
      text.replace(at, word.size(), replacement);
    }
  }
  return text;
}

struct Places {
  int64_t first, second, out;
};

// Reads a vector of global and one of local memory, and writes one of each result behind the last, from a place of their own.
std::string vectors_of(const std::string& type) {
  return replaced(R"(
BP_VECTOR(TYPE, TYPE_vector);
#define STORE(value) *(BP_LOCAL TYPE_vector*)to = (value), to += lanes
BP_KERNEL(vectors_TYPE, 3, Places, BP_GLOBAL TYPE* BP_RESTRICT out, BP_GLOBAL const TYPE* BP_RESTRICT in, BP_GLOBAL i32* BP_RESTRICT has) {
  BP_LOCAL_ARRAY(TYPE, row, 256);
  BP_LOCAL_ARRAY(TYPE, results, 256);
  const i32 lanes = (i32)(sizeof(TYPE_vector) / sizeof(TYPE));
  has[0] = lanes;
  for (i32 i = 0; i < 256; ++i) {
    row[i] = in[i];
    results[i] = (TYPE)77;
  }
  const TYPE scalar = in[0];
  const TYPE_vector x = *(BP_GLOBAL const TYPE_vector*)(in + bp_arg.first);
  const TYPE_vector y = *(BP_LOCAL const TYPE_vector*)(row + bp_arg.second);
  BP_LOCAL TYPE* to = results + bp_arg.out;
  STORE(BP_VECTOR_ZERO(TYPE_vector));
  STORE(x + y);
  STORE(x - y);
  STORE(x * y);
  STORE(scalar * x);
  STORE(y + scalar);
  STORE(BP_VECTOR_FMA(scalar, x, y));
  for (i32 i = 0; i < 256; ++i) out[i] = results[i];
}
#undef STORE
)",
                  {{"TYPE", type}});
}

template <class T>
void vectors_on(Context& c, const Module& module, const Tile& tile, bool fuses) {
  constexpr std::array names{"BP_VECTOR_ZERO", "x + y", "x - y", "x * y", "a T * x", "y + a T", "BP_VECTOR_FMA"};
  const std::string type = type_name<T>;
  Random random;
  std::vector<T> in(room);
  for (T& value : in) value = static_cast<T>((static_cast<double>(random.next() % 2'000'001) - 1e6) / (std::is_integral_v<T> ? 1e3 : 997));
  const DeviceArray<T> input(c, 0, in), out(c, 0, room);
  const DeviceArray<int32_t> has(c, 0, 1);
  for (int64_t repeat = 0; repeat < 20; ++repeat) {
    const auto place = [&] { return static_cast<int64_t>(random.next() % 100); };
    const Places places{place(), place(), static_cast<int64_t>(random.next() % 16)};
    module.run("vectors_" + type, tile, 1, {out.address(), input.address(), has.address()}, places, 1, "BP_VECTOR of " + type);
    const std::vector<T> got = out.get();
    const int64_t lanes = has.get()[0];
    for (int64_t i = 0; i < room; ++i) {
      const int64_t number = i < places.out ? -1 : (i - places.out) / lanes, lane = (i - places.out) % lanes;
      const bool is_result = number >= 0 && number < static_cast<int64_t>(names.size());
      const T a = in[0], value = got[static_cast<size_t>(i)];
      const T x = is_result ? in[static_cast<size_t>(places.first + lane)] : T(0),
              y = is_result ? in[static_cast<size_t>(places.second + lane)] : T(0);
      const T twice = a * x + y;
      const T once = std::is_integral_v<T> ? twice : static_cast<T>(std::fma(a, x, y));
      const T want = !is_result ? T(77) : std::array<T, 7>{T(0), x + y, x - y, x * y, a * x, y + a, once}[static_cast<size_t>(number)];
      const bool either = number == 6 && !fuses && value == twice;
      c.require(value == want || either, number == 6 ? fma_rule : vector_rule,
                "%s of %s, from places %lld and %lld to %lld: element %lld is %s, expected %s",
                is_result ? names[static_cast<size_t>(number)] : "what lies beside the results", type.c_str(), wide(places.first),
                wide(places.second), wide(places.out), wide(i), text_of(value).c_str(), text_of(want).c_str());
    }
  }
  for (const uint64_t address : {input.address(), out.address(), has.address()}) c.free(0, address);
}

constexpr char dots[] = R"(
BP_VECTOR(u32, dot_pairs);
BP_VECTOR(f32, dot_sums);
BP_KERNEL(dots, 3, Places, BP_GLOBAL f32* BP_RESTRICT out, BP_GLOBAL const u32* BP_RESTRICT in, BP_GLOBAL const f32* BP_RESTRICT sums) {
  BP_LOCAL_ARRAY(u32, row, 256);
  const i32 lanes = (i32)(sizeof(dot_sums) / sizeof(f32));
  for (i32 i = 0; i < 256; ++i) {
    row[i] = in[i];
    out[i] = (f32)77;
  }
  const dot_pairs y = *(BP_LOCAL const dot_pairs*)(row + bp_arg.second);
  const dot_sums z = *(BP_GLOBAL const dot_sums*)(sums + bp_arg.second);
  *(BP_GLOBAL dot_sums*)(out + bp_arg.out) = BP_VECTOR_DOT_BF16(in[bp_arg.first], y, z);
  out[255] = (f32)lanes;
}
)";

void dots_on(Context& c, const Module& module, const Tile& tile) {
  Random random;
  const auto number = [&] { return static_cast<float>(random.next() % 2001) / 100 - 10; };
  std::vector<uint32_t> pairs(room);
  for (uint32_t& pair : pairs) pair = bits<uint32_t>(number()) >> 16 | (bits<uint32_t>(number()) & 0xffff0000);
  std::vector<float> sums(room);
  for (float& sum : sums) sum = number();
  const DeviceArray<uint32_t> in(c, 0, pairs);
  const DeviceArray<float> terms(c, 0, sums), out(c, 0, room);
  for (int64_t repeat = 0; repeat < 20; ++repeat) {
    const auto place = [&] { return static_cast<int64_t>(random.next() % 100); };
    const Places places{place(), place(), static_cast<int64_t>(random.next() % 16)};
    module.run("dots", tile, 1, {out.address(), in.address(), terms.address()}, places, 1, "BP_VECTOR_DOT_BF16");
    const std::vector<float> got = out.get();
    const auto lanes = static_cast<int64_t>(got[room - 1]);
    for (int64_t i = 0; i < room - 1; ++i) {
      const int64_t lane = i - places.out;
      const bool is_result = lane >= 0 && lane < lanes;
      const auto at = static_cast<size_t>(places.second + std::max<int64_t>(lane, 0));
      const uint32_t x = pairs[static_cast<size_t>(places.first)], y = is_result ? pairs[at] : 0;
      const double low = double{bits<float>(x << 16)} * double{bits<float>(y << 16)};
      const double high = double{bits<float>(x & 0xffff0000)} * double{bits<float>(y & 0xffff0000)};
      const double want = is_result ? sums[at] + low + high : 77.;
      const double bound = is_result ? (std::abs(sums[at]) + std::abs(low) + std::abs(high)) * 0x1p-22 : 0;
      const float value = got[static_cast<size_t>(i)];
      c.require(std::abs(value - want) <= bound, dot_rule, "%s, of places %lld and %lld to %lld: element %lld is %s, expected %s",
                is_result ? "BP_VECTOR_DOT_BF16" : "what lies beside the result", wide(places.first), wide(places.second), wide(places.out),
                wide(i), text_of(value).c_str(), text_of(static_cast<float>(want)).c_str());
    }
  }
  for (const uint64_t address : {in.address(), terms.address(), out.address()}) c.free(0, address);
}

struct Block {
  int64_t pitch, depth;
};

std::string transpose_of(const std::string& type, int rows, int step) {
  return replaced(R"(
BP_KERNEL(transpose_TYPE_ROWS_STEP, 2, Block, BP_GLOBAL TYPE* BP_RESTRICT out, BP_GLOBAL const TYPE* BP_RESTRICT in) {
  BP_LOCAL_ARRAY(TYPE, from, ROWS * 48);
  BP_LOCAL_ARRAY(TYPE, to, STEP * 48);
  for (i32 i = 0; i < ROWS * (i32)bp_arg.pitch; ++i) from[i] = in[i];
  for (i32 i = 0; i < STEP * 48; ++i) to[i] = (TYPE)77;
  BP_TRANSPOSE(to, STEP, from, (i32)bp_arg.pitch, ROWS, (i32)bp_arg.depth);
  for (i32 i = 0; i < STEP * 48; ++i) out[i] = to[i];
}
)",
                  {{"TYPE", type}, {"ROWS", std::to_string(rows)}, {"STEP", std::to_string(step)}});
}

constexpr std::array<std::pair<int, int>, 8> blocks{
    {{1, 1}, {2, 2}, {4, 4}, {6, 6}, {8, 8}, {8, 24}, {16, 16}, {24, 26}}};  // rows and step

template <class T>
void transposes_on(Context& c, const Module& module, const Tile& tile) {
  const std::string type = type_name<T>;
  std::vector<T> in(24 * 48);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(i * 37 % 1013);
  const DeviceArray<T> input(c, 0, in), out(c, 0, 26 * 48);
  for (const auto& [rows, step] : blocks) {
    for (int64_t depth = 1; depth <= 40; ++depth) {
      const Block block{depth + depth % 5, depth};
      module.run(format("transpose_%s_%d_%d", type.c_str(), rows, step), tile, 1, {out.address(), input.address()}, block, 1,
                 "BP_TRANSPOSE");
      std::vector<T> want(static_cast<size_t>(step) * 48, T(77));
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t r = 0; r < rows; ++r) want[static_cast<size_t>(k * step + r)] = in[static_cast<size_t>(r * block.pitch + k)];
      }
      same(c, out.get(), want, tile,
           format("BP_TRANSPOSE of %d rows of %s, %lld deep, to a step of %d", rows, type.c_str(), wide(depth), step).c_str(),
           transpose_rule);
    }
  }
  for (const uint64_t address : {input.address(), out.address()}) c.free(0, address);
}

}  // namespace

void vectors(Context& c) {
  const Compiler compiler(c, 0);
  Tile tile = compiler.tile();
  tile.group = 1;
  const Module asked = load(c, compiler, tile, "#ifdef", R"(
typedef struct { i64 n; } Count;
BP_KERNEL(defined_words, 1, Count, BP_GLOBAL i32* BP_RESTRICT out) {
  out[0] = out[1] = out[2] = out[3] = 0;
#ifdef BP_VECTOR
  out[0] = 1;
#endif
#ifdef BP_VECTOR_FMA
  out[1] = 1;
#endif
#ifdef BP_TRANSPOSE
  out[2] = 1;
#endif
#ifdef BP_VECTOR_DOT_BF16
  out[3] = 1;
#endif
}
)");
  const DeviceArray<int32_t> out(c, 0, 4);
  asked.run("defined_words", tile, 1, {out.address()}, Count{0});
  const std::vector<int32_t> has = out.get();
  out.free();
  if (!has[0] && !has[2]) throw NotOffered{"the prelude defines no BP_VECTOR or BP_TRANSPOSE"};
  if (has[0]) {
    std::string kernels = "typedef struct { i64 first; i64 second; i64 out; } Places;\n";
    if (!has[1]) kernels += "#define BP_VECTOR_FMA(x, y, z) ((x) * (y) + (z))\n";  // the core's own
    kernels += vectors_of("f32") + vectors_of("i32") + (compiler.has_f64() ? vectors_of("f64") : "");
    if (has[3]) kernels += dots;
    const Module module = load(c, compiler, tile, "BP_VECTOR, BP_VECTOR_ZERO, BP_VECTOR_FMA, BP_VECTOR_DOT_BF16", kernels);
    vectors_on<float>(c, module, tile, has[1]);
    vectors_on<int32_t>(c, module, tile, has[1]);
    if (compiler.has_f64()) vectors_on<double>(c, module, tile, has[1]);
    if (has[3]) dots_on(c, module, tile);
    module.unload();
  }
  if (has[2]) {
    std::string kernels = "typedef struct { i64 pitch; i64 depth; } Block;\n";
    for (const auto& [rows, step] : blocks) kernels += transpose_of("u32", rows, step) + transpose_of("u64", rows, step);
    const Module module = load(c, compiler, tile, "BP_TRANSPOSE", kernels);
    transposes_on<uint32_t>(c, module, tile);
    transposes_on<uint64_t>(c, module, tile);
    module.unload();
  }
}

}  // namespace dialect_impl
}  // namespace backplane::check
