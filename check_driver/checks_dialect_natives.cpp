// check_driver/checks_dialect_natives.cpp: optional words of a prelude: the chip's halves, functions and rows.
#include "words.h"

namespace backplane::check {
namespace dialect_impl {

double half_value(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                           : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                          : std::ldexp(fraction, -24);
  return half & 0x8000 ? -magnitude : magnitude;
}

double bfloat_value(uint16_t brain) { return static_cast<double>(bits<float>(static_cast<uint32_t>(brain) << 16)); }

// The pattern whose value is nearest to x, ties to the even one, in a format of 16 bits with infinity at that pattern.
uint16_t nearest(float x, uint16_t infinity, double (*value)(uint16_t)) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(x));
  uint16_t low = 0, high = infinity;  // value(low) <= magnitude < value(high), as if infinity were the next finite number
  const double beyond = 2 * value(static_cast<uint16_t>(infinity - 1)) - value(static_cast<uint16_t>(infinity - 2));
  const auto at = [&](uint16_t pattern) { return pattern == infinity ? beyond : value(pattern); };
  if (magnitude >= beyond) return static_cast<uint16_t>(sign | infinity);
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (at(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - at(low), above = at(high) - magnitude;
  const bool up = above < below || (above == below && high % 2 == 0);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

// Every pattern of 16 bits.
const Points<uint16_t>& all_halves() {
  static const Points<uint16_t> all = [] {
    Points<uint16_t> p;
    for (uint32_t i = 0; i < 65536; ++i) p.x.push_back(static_cast<uint16_t>(i));
    p.y = p.z = p.x;
    return p;
  }();
  return all;
}

// What lies on, between and beside the numbers of a format of 16 bits, and random floats of its range.
Points<float> halves_and_between(double (*value)(uint16_t)) {
  Points<float> p;
  Random random;
  for (uint32_t i = 0; i < 65535; i += 13) {
    const auto low = static_cast<float>(value(static_cast<uint16_t>(i))), high = static_cast<float>(value(static_cast<uint16_t>(i + 1)));
    const auto tie = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    for (float x : {low, tie, std::nextafter(tie, low), std::nextafter(tie, high)}) {
      if (std::isnan(x) || x == 0 || std::isnormal(x) || std::isinf(x)) p.x.push_back(x);
    }
  }
  for (int i = 0; i < 1000; ++i)
    p.x.push_back(static_cast<float>(std::ldexp(random.between(-2, 2), static_cast<int>(random.next() % 60) - 35)));
  for (float x : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 65504.0f, 65519.0f, 65520.0f, std::numeric_limits<float>::max()}) p.x.push_back(x);
  p.y = p.z = p.x;
  return p;
}

constexpr char half_rule[] = "bits of a half; to nearest, ties to even, NaN stays NaN";

// Conversions from bits of 16 to f32 and back; infinity: its bits.
template <double (*value)(uint16_t), uint16_t infinity>
void add_halves(std::vector<Word>& words, const std::string& type) {
  static const Points<float> numbers = halves_and_between(value);
  const std::string widen = "bp_" + type + "_to_f32", narrow = "bp_f32_to_" + type;
  const std::string code = "x == x ? " + narrow + "(x) : (u16)((" + narrow + format("(x) & 0x7fff) > 0x%x)", unsigned{infinity});
  words.push_back(word_on<float, uint16_t>(all_halves(), widen.c_str(), (widen + "(x)").c_str(), OF(uint16_t, static_cast<float>(value(x))),
                                           0, half_rule));
  words.push_back(word_on<uint16_t, float>(numbers, narrow.c_str(), code.c_str(),
                                           OF(float, std::isnan(x) ? uint16_t(1) : nearest(x, infinity, value)), 0, half_rule));
}

void natives(Context& c) {
  const Compiler compiler(c, 0);
  const Tile tile = compiler.tile();
  std::string asks;
  int number = 0;
  for (const char* name : {"BP_NATIVE_F16", "BP_NATIVE_BF16", "BP_NATIVE_MATH"}) {
    asks += format("#ifdef %s\n  out[%d] = 1;\n#endif\n", name, number++);
  }
  const Module module =
      load(c, compiler, tile, "#ifdef",
           "typedef struct { i64 n; } Count;\nBP_KERNEL(natives, 1, Count, BP_GLOBAL i32* BP_RESTRICT out) {\n" + asks + "}\n");
  const DeviceArray<int32_t> out(c, 0, 3);
  module.run("natives", tile, 1, {out.address()}, Count{0});
  const std::vector<int32_t> has = out.get();
  std::vector<Word> words;
  if (has[0]) add_halves<half_value, 0x7c00>(words, "f16");
  if (has[1]) add_halves<bfloat_value, 0x7f80>(words, "bf16");
  if (has[2]) {
    LibraryWords<float> library(4, "BP_NATIVE_MATH: of f32, to 4 ulp");
    library.add_all();
    words.insert(words.end(), library.words.begin(), library.words.end());
  }
  if (words.empty()) throw NotOffered{"the prelude defines no BP_NATIVE_F16, BP_NATIVE_BF16 or BP_NATIVE_MATH"};
  hold(c, compiler, words);
}

// Rows of every length up to two vectors of 64 bytes and from odd places, each written between its neighbours, which stay.
void rows(Context& c) {
  constexpr char rule[] = "BP_NATIVE_F16_ROWS: the same of count halves that follow each other; nothing behind the count is touched";
  constexpr char words[] = "bp_f16_row_to_f32, bp_f32_row_to_f16";
  const Compiler compiler(c, 0);
  Tile tile = compiler.tile();
  tile.group = 1;
  const Module module = load(c, compiler, tile, words, R"(
typedef struct { i64 n; i64 to_f32; i64 from; i64 to; } Row;
BP_KERNEL(rows, 3, Row, BP_GLOBAL f32* BP_RESTRICT floats, BP_GLOBAL u16* BP_RESTRICT halves, BP_GLOBAL i32* BP_RESTRICT has) {
  BP_LOCAL_ARRAY(f32, row, 128);
  has[0] = 0;
#ifdef BP_NATIVE_F16_ROWS
  has[0] = 1;
  if (bp_arg.to_f32) {
    for (i32 i = 0; i < 128; ++i) row[i] = -77.0f;
    bp_f16_row_to_f32(row + bp_arg.to, halves + bp_arg.from, (i32)bp_arg.n);
    for (i32 i = 0; i < 128; ++i) floats[i] = row[i];
  } else {
    for (i32 i = 0; i < 128; ++i) row[i] = floats[i];
    bp_f32_row_to_f16(halves + bp_arg.to, row + bp_arg.from, (i32)bp_arg.n);
  }
#endif
}
)");
  struct Row {
    int64_t n, to_f32, from, to;
  };
  const DeviceArray<float> floats(c, 0, 128);
  const DeviceArray<uint16_t> halves(c, 0, 128);
  const DeviceArray<int32_t> has(c, 0, 1);
  const auto run = [&](const Row& row) { module.run("rows", tile, 1, {floats.address(), halves.address(), has.address()}, row, 1, words); };
  run({0, 1, 0, 0});
  if (!has.get()[0]) throw NotOffered{"the prelude defines no BP_NATIVE_F16_ROWS"};
  const auto described = [&](const Row& row, int64_t i) {
    return format("%s: element %lld of %lld from place %lld to %lld", row.to_f32 ? "bp_f16_row_to_f32" : "bp_f32_row_to_f16",
                  wide(i - row.to), wide(row.n), wide(row.from), wide(row.to));
  };
  static const Points<float> numbers = halves_and_between(half_value);
  Random random;
  uint32_t half = 0;
  size_t number = 0;
  for (int64_t repeat = 0; repeat < 10; ++repeat) {
    for (int64_t n = 0; n <= 70; ++n) {
      const Row up{n, 1, static_cast<int64_t>(random.next() % 50), static_cast<int64_t>(random.next() % 50)};
      std::vector<uint16_t> bits_of_halves(128);
      for (uint16_t& value : bits_of_halves) value = static_cast<uint16_t>(half += 37);
      halves.set(bits_of_halves);
      run(up);
      const std::vector<float> converted = floats.get();
      for (int64_t i = 0; i < 128; ++i) {
        const bool is_row = i >= up.to && i < up.to + n;
        const float want = is_row ? static_cast<float>(half_value(bits_of_halves[static_cast<size_t>(i - up.to + up.from)])) : -77.0f;
        const float got = converted[static_cast<size_t>(i)];
        c.require(agrees(got, want, 0), rule, "%s is %s, expected %s", described(up, i).c_str(), text_of(got).c_str(),
                  text_of(want).c_str());
      }
      const Row down{n, 0, static_cast<int64_t>(random.next() % 50), static_cast<int64_t>(random.next() % 50)};
      std::vector<float> values(128);
      for (float& value : values) value = numbers.x[number++ % numbers.size()];
      floats.set(values);
      halves.set(std::vector<uint16_t>(128, 0x4d4d));
      run(down);
      const std::vector<uint16_t> narrow = halves.get();
      for (int64_t i = 0; i < 128; ++i) {
        const bool is_row = i >= down.to && i < down.to + n;
        const float value = is_row ? values[static_cast<size_t>(i - down.to + down.from)] : 0;
        const uint16_t got = narrow[static_cast<size_t>(i)];
        const uint16_t want = is_row ? nearest(value, 0x7c00, half_value) : 0x4d4d;
        c.require(std::isnan(value) ? (got & 0x7fff) > 0x7c00 : got == want, rule, "%s is %s, expected %s", described(down, i).c_str(),
                  text_of(got).c_str(), text_of(want).c_str());
      }
    }
  }
  for (const uint64_t address : {floats.address(), halves.address(), has.address()}) c.free(0, address);
}

}  // namespace dialect_impl
}  // namespace backplane::check
