// check_driver/checks_dialect_numbers.cpp: integers, f32 and f64: the words that give values, against this host's.
#include "words.h"

namespace backplane::check {
namespace dialect_impl {

void integers(Context& c) {
  using i8 = int8_t;
  using i16 = int16_t;
  using i32 = int32_t;
  using i64 = int64_t;
  using u8 = uint8_t;
  using u16 = uint16_t;
  using u32 = uint32_t;
  using u64 = uint64_t;
  std::vector<Word> words;
  const auto sizes = [&](auto type, const char* name, const char* code) {
    using T = decltype(type);
    words.push_back(word<i32, T>(name, code, OF(T, static_cast<i32>(sizeof x))));
    words.push_back(word<T, T>(name, "x", OF(T, x)));
    words.push_back(word<i32, T>(name, "(x < y) + 2 * (x == z)", OF(T, (x < y) + 2 * (x == z))));
  };
  sizes(i8(), "i8", "(i32)sizeof(i8)");
  sizes(i16(), "i16", "(i32)sizeof(i16)");
  sizes(i32(), "i32", "(i32)sizeof(i32)");
  sizes(i64(), "i64", "(i32)sizeof(i64)");
  sizes(u8(), "u8", "(i32)sizeof(u8)");
  sizes(u16(), "u16", "(i32)sizeof(u16)");
  sizes(u32(), "u32", "(i32)sizeof(u32)");
  sizes(u64(), "u64", "(i32)sizeof(u64)");
  const auto arithmetic = [&](auto type, auto same_width, const char* name) {
    using T = decltype(type);
    using U = decltype(same_width);
    words.push_back(word<T, T>(name, "x + y", OF(T, static_cast<T>(U(x) + U(y)))));
    words.push_back(word<T, T>(name, "x - y", OF(T, static_cast<T>(U(x) - U(y)))));
    words.push_back(word<T, T>(name, "x * y", OF(T, static_cast<T>(U(x) * U(y)))));
    words.push_back(word<T, T>(name, "x * y + z", OF(T, static_cast<T>(U(x) * U(y) + U(z)))));
    words.push_back(word<T, T>(name, "(x & y) ^ (y | ~z)", OF(T, static_cast<T>((x & y) ^ (y | ~z)))));
    // The least number by -1 has no value in C.
    words.push_back(word<T, T>(name, "(y == 0 || y + 1 == 0) ? 0 : x / y", OF(T, y == 0 || T(U(y) + 1) == 0 ? T(0) : T(x / y))));
    words.push_back(word<T, T>(name, "(y == 0 || y + 1 == 0) ? 0 : x % y", OF(T, y == 0 || T(U(y) + 1) == 0 ? T(0) : T(x % y))));
  };
  arithmetic(i32(), u32(), "i32");
  arithmetic(i64(), u64(), "i64");
  arithmetic(u32(), u32(), "u32");
  arithmetic(u64(), u64(), "u64");
  words.push_back(word<u32, u32>("u32", "x << (y & 31u)", OF(u32, u32(x << (y & 31u)))));
  words.push_back(word<u32, u32>("u32", "x >> (y & 31u)", OF(u32, u32(x >> (y & 31u)))));
  words.push_back(word<u64, u64>("u64", "x << (y & 63u)", OF(u64, u64(x << (y & 63u)))));
  words.push_back(word<u64, u64>("u64", "x >> (y & 63u)", OF(u64, u64(x >> (y & 63u)))));
  words.push_back(word<u64, u32>("u64", "(u64)x * y", OF(u32, u64(x) * y)));
  words.push_back(word<i64, i32>("i64", "(i64)x * y - z", OF(i32, i64(x) * y - z)));
  words.push_back(word<u8, u32>("u8", "(u8)x", OF(u32, u8(x))));
  words.push_back(word<u16, u64>("u16", "(u16)x", OF(u64, u16(x))));
  words.push_back(word<u32, i64>("u32", "(u32)x", OF(i64, u32(x))));
  words.push_back(word<i64, i8>("i8", "(i64)x - y", OF(i8, i64(x) - y)));
  words.push_back(word<i32, u8>("u8", "x - y", OF(u8, i32(x) - y)));
  hold(c, Compiler(c, 0), words);
}

// Apart, since a language without an option for it has all the other words.
void overflow(Context& c) {
  using i32 = int32_t;
  using i64 = int64_t;
  hold(c, Compiler(c, 0),
       {word<i32, i32>("i32", "(x + 1 > x)", OF(i32, i32(x != INT32_MAX))),
        word<i32, i64>("i64", "(x + 1 > x)", OF(i64, i32(x != INT64_MAX)))});
}

// What f32 and f64 share: T's own words with an ending, "" or "64", and constants with a suffix.
template <class T>
std::vector<Word> real_words() {
  constexpr bool single = std::is_same_v<T, float>;
  using Bits = std::conditional_t<single, uint32_t, uint64_t>;
  const char* type = type_name<T>;
  const auto named = [](const char* name) { return std::string("bp_") + name + (single ? "" : "64"); };
  std::vector<Word> words = {
      word<T, T>(type, "x", OF(T, x)),
      word<T, T>(type, "x + y", OF(T, x + y)),
      word<T, T>(type, "x - y", OF(T, x - y)),
      word<T, T>(type, "x * y", OF(T, x * y)),
      word<T, T>(type, "x / y", OF(T, x / y)),
      word<T, T>(type, "-x", OF(T, -x)),
      word<T, T>(type, "x - x", OF(T, x - x)),
      word<T, T>(type, single ? "x * 0.0f" : "x * 0.0", OF(T, x * T(0))),
      word<T, T>(type, single ? "x + 0.0f" : "x + 0.0", OF(T, x + T(0))),
      word<T, T>(type, single ? "1.0f / x" : "1.0 / x", OF(T, T(1) / x)),
      word<T, T>(type, single ? "x / 3.0f" : "x / 3.0", OF(T, x / T(3))),
      word<T, T>(type, "x > y ? x : y", OF(T, x > y ? x : y)),
      word<int32_t, T>(type, "(x != x) + 2 * (x == x)", OF(T, int32_t(x != x) + 2 * int32_t(x == x))),
      word<int32_t, T>(type, "(x < y) + 2 * (x <= y) + 4 * (x > y) + 8 * (x >= y) + 16 * (x == y) + 32 * (x != y)",
                       OF(T, (x < y) + 2 * (x <= y) + 4 * (x > y) + 8 * (x >= y) + 16 * (x == y) + 32 * (x != y))),
      word<int32_t, T>(type, "x > -1000000 && x < 1000000 ? (i32)x : 0", OF(T, x > -1000000 && x < 1000000 ? int32_t(x) : 0)),
      word<T, int32_t>(type, single ? "(f32)x" : "(f64)x", OF(int32_t, T(x))),
      word<T, int64_t>(type, single ? "(f32)x" : "(f64)x", OF(int64_t, T(x))),
      word<T, uint32_t>(type, single ? "(f32)x" : "(f64)x", OF(uint32_t, T(x))),
      word<Bits, T>(single ? "bp_as_u32" : "bp_as_u64", single ? "bp_as_u32(x)" : "bp_as_u64(x)", OF(T, bits<Bits>(x))),
      word<T, Bits>(single ? "bp_as_f32" : "bp_as_f64",
                    single ? "bp_as_f32(x & 0x7fffffu | 0x3f800000u)" : "bp_as_f64(x >> 12 | (u64)1023 << 52)",
                    OF(Bits, bits<T>(single ? Bits((x & 0x7fffffu) | 0x3f800000u) : Bits(uint64_t(x) >> 12 | uint64_t(1023) << 52)))),
  };
  const auto add = [&](const char* name, const char* parameters, T (*want)(T, T, T)) {
    words.push_back(word<T, T>(named(name).c_str(), (named(name) + parameters).c_str(), want));
  };
  add("sqrt", "(x)", OF(T, std::sqrt(x)));
  add("fabs", "(x)", OF(T, std::fabs(x)));
  add("floor", "(x)", OF(T, std::floor(x)));
  add("ceil", "(x)", OF(T, std::ceil(x)));
  add("trunc", "(x)", OF(T, std::trunc(x)));
  add("rint", "(x)", OF(T, std::rint(x)));
  add("fma", "(x, y, z)", OF(T, std::fma(x, y, z)));
  add("copysign", "(x, y)", OF(T, std::copysign(x, y)));
  return words;
}

void floats(Context& c) {
  std::vector<Word> words = real_words<float>();
  words.push_back(word<float, float>("BP_INFINITY", "x < 0.0f ? -BP_INFINITY : BP_INFINITY", OF(float, x < 0.0f ? -INFINITY : INFINITY)));
  words.push_back(word<float, float>("BP_NAN", "BP_NAN", OF(float, NAN)));
  words.push_back(word<int32_t, float>("BP_NAN", "(BP_NAN == BP_NAN) + 2 * (x < BP_NAN) + 4 * (BP_NAN != x)", OF(float, 4)));
  hold(c, Compiler(c, 0), words);
}

void doubles(Context& c) {
  const Compiler compiler(c, 0);
  if (!compiler.has_f64()) throw NotOffered{std::string("target \"") + compiler.target().target + "\" has no FLOAT64"};
  std::vector<Word> words = real_words<double>();
  words.push_back(word<float, double>("f64", "(f32)x", OF(double, static_cast<float>(x))));
  words.push_back(word<double, float>("f64", "(f64)x * y", OF(float, static_cast<double>(x) * static_cast<double>(y))));
  LibraryWords<double> library(16, "the C library's functions of doubles, to 16 ulp");
  library.add_all();
  using Wide = long double;
  library.add("fmod", "(x, y)", OF(double, static_cast<double>(std::fmod(Wide(x), Wide(y)))));
  library.add("hypot", "(x, y)", OF(double, static_cast<double>(std::hypot(Wide(x), Wide(y)))));
  library.add("lgamma", "(bp_fabs64(x))", OF(double, static_cast<double>(std::lgamma(std::fabs(Wide(x))))));  // beside its zeros
  words.insert(words.end(), library.words.begin(), library.words.end());
  hold(c, compiler, words);
}

}  // namespace dialect_impl
}  // namespace backplane::check
