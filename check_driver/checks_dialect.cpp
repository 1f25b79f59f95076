// check_driver/checks_dialect.cpp: family "dialect": every word of docs/dialect.md in a kernel of its own, against values of this host.
//
// The words that give values go into one unit a check, a kernel each. If that does not compile, halves of it tell which word is to blame.
#include <ctype.h>
#include <math.h>

#include <cmath>
#include <functional>
#include <limits>

#include "kernels.h"

namespace backplane::check {
namespace dialect_impl {

constexpr char words_rule[] = "docs/dialect.md, \"The prelude\": what a prelude defines";
constexpr char integer_rule[] = "integers; arithmetic on i32 and i64 wraps";
constexpr char exact_rule[] =
    "IEEE 754; + - * / and bp_sqrt rounded to nearest; the others of f32 exact to the last bit; NaN and infinity must work";

// ---- elements

template <class T>
constexpr const char* type_name = nullptr;
#define TYPE(host, word) \
  template <>            \
  constexpr const char* type_name<host> = word;
TYPE(int8_t, "i8")
TYPE(int16_t, "i16")
TYPE(int32_t, "i32")
TYPE(int64_t, "i64")
TYPE(uint8_t, "u8")
TYPE(uint16_t, "u16")
TYPE(uint32_t, "u32")
TYPE(uint64_t, "u64")
TYPE(float, "f32")
TYPE(double, "f64")
#undef TYPE

template <class To, class From>
To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To out;
  memcpy(&out, &value, sizeof out);
  return out;
}

template <class T>
std::string text_of(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return format("%.9g (0x%08x)", static_cast<double>(value), bits<uint32_t>(value));
  } else if constexpr (std::is_same_v<T, double>) {
    return format("%.17g (0x%016llx)", value, static_cast<unsigned long long>(bits<uint64_t>(value)));
  } else if constexpr (std::is_signed_v<T>) {
    return format("%lld", static_cast<long long>(value));
  } else {
    return format("%llu (0x%llx)", static_cast<unsigned long long>(value), static_cast<unsigned long long>(value));
  }
}

// ulps 0: the same bits; but any NaN for a NaN, and a zero where the result is at the edge of the subnormal numbers.
template <class T>
bool agrees(T got, T want, double ulps) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
    const T least = std::numeric_limits<T>::min();
    if (std::fabs(want) <= least && (want != 0 || ulps > 0) && std::fabs(got) <= (ulps > 0 ? least : T(0))) return true;
    if (ulps == 0 || std::isinf(want) || std::isinf(got)) return !memcmp(&got, &want, sizeof got);
    const T ulp = std::nextafter(std::max(std::fabs(want), least), std::numeric_limits<T>::infinity()) - std::max(std::fabs(want), least);
    return std::fabs(got - want) <= static_cast<T>(ulps) * ulp;
  } else {
    return got == want;
  }
}

// ---- points

// x, y, z of the i-th element.
template <class T>
struct Points {
  std::vector<T> x, y, z;
  uint64_t size() const { return x.size(); }
};

class Random {
 public:
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t mixed = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    return mixed ^ (mixed >> 31);
  }
  double between(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 7;
};

// Each special value with each, then random ones. Of real numbers no subnormal: a target may take it for a zero.
template <class T>
std::vector<T> special() {
  if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    const T whole = T(1) / Limits::epsilon();  // from here on there are no fractions
    std::vector<T> values = {0,
                             T(0.5),
                             1,
                             T(1.5),
                             2,
                             T(2.5),
                             3,
                             T(3.5),
                             T(0.1),
                             T(1) / 3,
                             T(0.49999997),
                             1000,
                             whole,
                             whole / 2 + T(0.5),
                             whole / 2 - T(0.5),
                             T(65504),
                             T(1e-6),
                             T(1e30),
                             Limits::max(),
                             Limits::min(),
                             Limits::infinity(),
                             std::nextafter(T(1), T(0))};
    for (size_t i = 0, n = values.size(); i < n; ++i) values.push_back(-values[i]);
    values.push_back(Limits::quiet_NaN());
    return values;
  } else {
    using Limits = std::numeric_limits<T>;
    return {0,
            1,
            2,
            3,
            7,
            31,
            100,
            T(-1),
            T(-2),
            T(-100),
            Limits::max(),
            Limits::min(),
            Limits::max() / 2,
            Limits::max() - 1,
            T(0x55aa55aa),
            T(12345)};
  }
}

template <class T>
const Points<T>& points() {
  static const Points<T> all = [] {
    Points<T> p;
    const std::vector<T> values = special<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t j = 0; j < values.size(); ++j) {
        p.x.push_back(values[i]);
        p.y.push_back(values[j]);
        p.z.push_back(values[(i * 5 + j * 3) % values.size()]);
      }
    }
    Random random;
    const auto any = [&] {
      if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(std::ldexp(random.between(-2, 2), static_cast<int>(random.next() % 41) - 20));
      } else {
        return static_cast<T>(random.next());
      }
    };
    for (int i = 0; i < 500; ++i) {
      p.x.push_back(any());
      p.y.push_back(any());
      p.z.push_back(any());
      // The exact rest of a product: an fma that rounds twice gives 0.
      if constexpr (std::is_floating_point_v<T>) {
        if (i % 2) p.z.back() = -(p.x.back() * p.y.back());
      }
    }
    return p;
  }();
  return all;
}

// Where functions of the C library are looked at: magnitudes that occur, ends of domains, infinity and NaN.
template <class T>
const Points<T>& library_points() {
  static const Points<T> all = [] {
    Points<T> p;
    const T infinity = std::numeric_limits<T>::infinity();
    const std::vector<T> values = {0,      T(1e-9), T(0.001), T(0.1), T(0.25), T(0.5), T(0.75), T(0.9), 1,       T(1.5),
                                   T(2.5), 3,       5,        10,     20,      50,     80,      1000,   infinity};
    std::vector<T> both = values;
    for (T value : values) both.push_back(-value);
    both.push_back(std::numeric_limits<T>::quiet_NaN());
    for (T x : both) {
      for (T y : both) {
        p.x.push_back(x);
        p.y.push_back(y);
      }
    }
    Random random;
    for (double range : {1.0, 4.0, 30.0, 100.0}) {
      for (int i = 0; i < 200; ++i) {
        p.x.push_back(static_cast<T>(random.between(-range, range)));
        p.y.push_back(static_cast<T>(random.between(-range, range)));
      }
    }
    p.z = p.x;
    return p;
  }();
  return all;
}

// ---- words

// A word in an expression of x, y and z, and what it gives.
struct Word {
  std::string name;  // as docs/dialect.md writes it
  std::string code;
  const char *result, *argument;  // types
  const char* rule;
  std::function<void(Context&, const Module&, const Tile&, const std::string& kernel, const Word&)> run;
};

struct Count {
  int64_t n;
};

// True if the letter stands by itself in the expression.
bool uses(const std::string& code, char letter) {
  const auto joins = [&](size_t i) { return i < code.size() && (isalnum(static_cast<unsigned char>(code[i])) || code[i] == '_'); };
  for (size_t i = code.find(letter); i != std::string::npos; i = code.find(letter, i + 1)) {
    if (!joins(i - 1) && !joins(i + 1)) return true;
  }
  return false;
}

// Runs body; a failure of a call in it names the word, too.
template <class Body>
void named(const std::string& word, Body body) {
  try {
    body();
  } catch (Failure& failure) {
    if (failure.text.rfind(word, 0) != 0) failure.text.insert(0, word + ": ");
    throw;
  }
}

template <class R, class T>
Word word_on(const Points<T>& p, const char* name, const char* code, R (*want)(T, T, T), double ulps, const char* rule) {
  const auto run = [&p, want, ulps](Context& c, const Module& module, const Tile& tile, const std::string& kernel, const Word& word) {
    const DeviceArray<T> x(c, 0, p.x), y(c, 0, p.y), z(c, 0, p.z);
    const DeviceArray<R> out(c, 0, std::vector<R>(p.size(), static_cast<R>(77)));
    const auto args = arguments({out.address(), x.address(), y.address(), z.address()}, Count{static_cast<int64_t>(p.size())});
    module.launch(nullptr, module.prepare(module.function(kernel, 4, sizeof(Count)), tile, tile.groups(p.size()), args), word.name);
    const std::vector<R> got = out.get();
    for (size_t i = 0; i < p.size(); ++i) {
      const R expected = want(p.x[i], p.y[i], p.z[i]);
      if (agrees(got[i], expected, ulps)) continue;
      std::string where;
      for (const auto& [letter, value] : {std::pair('x', p.x[i]), std::pair('y', p.y[i]), std::pair('z', p.z[i])}) {
        if (uses(word.code, letter)) where += format(", %c = %s", letter, text_of(value).c_str());
      }
      c.fail(word.rule, format("%s: %s is %s, expected %s%s%s", word.name.c_str(), word.code.c_str(), text_of(got[i]).c_str(),
                               text_of(expected).c_str(), ulps > 0 ? format(" to %g ulp", ulps).c_str() : "", where.c_str()));
    }
    for (const uint64_t address : {x.address(), y.address(), z.address(), out.address()}) c.free(0, address);
  };
  return {name, code, type_name<R>, type_name<T>, rule, run};
}

// Exact.
template <class R, class T>
Word word(const char* name, const char* code, R (*want)(T, T, T)) {
  constexpr bool integers = std::is_integral_v<R> && std::is_integral_v<T>;
  return word_on<R, T>(points<T>(), name, code, want, 0, integers ? integer_rule : exact_rule);
}

// Of the C library, in more precision.
template <class T>
Word library(const char* name, const char* code, T (*want)(T, T, T), double ulps, const char* rule) {
  return word_on<T, T>(library_points<T>(), name, code, want, ulps, rule);
}

std::string kernel_of(const Word& word, size_t number) {
  const std::string input = std::string("BP_GLOBAL const ") + word.argument + "* BP_RESTRICT ";
  const std::string value = std::string("    const ") + word.argument + " ";
  return format("BP_KERNEL(word_%zu, 4, Count, BP_GLOBAL %s* BP_RESTRICT out, ", number, word.result) + input + "xs, " + input + "ys, " +
         input + "zs) {\n  EACH(i, bp_arg.n) {\n" + value + "x = xs[i];\n" + value + "y = ys[i];\n" + value + "z = zs[i];\n" +
         "    out[i] = " + word.code + ";\n  }\n}\n";
}

std::string unit_of(const Compiler& compiler, const Tile& tile, const std::vector<Word>& words) {
  std::string kernels = "typedef struct { i64 n; } Count;\n";
  for (size_t i = 0; i < words.size(); ++i) kernels += kernel_of(words[i], i);
  return compiler.unit(tile, kernels);
}

// Throws Failure with the name of a word without which the others compile.
[[noreturn]] void blame(Context& c, const Compiler& compiler, const Tile& tile, std::vector<Word> words, std::string log) {
  while (words.size() > 1) {
    const auto middle = words.begin() + static_cast<std::ptrdiff_t>(words.size() / 2);
    std::vector<Word> halves[] = {{words.begin(), middle}, {middle, words.end()}};
    Compiler::Compiled compiled = compiler.try_compile(unit_of(compiler, tile, halves[0]));
    std::vector<Word>* wrong = &halves[0];
    if (compiled.status == BP_OK) {
      compiled = compiler.try_compile(unit_of(compiler, tile, halves[1]));
      wrong = &halves[1];
    }
    if (compiled.status == BP_OK) c.fail(words_rule, "kernels of two words compile each alone, and not in one unit: " + log.substr(0, 600));
    log = compiled.log;
    words = *wrong;
  }
  c.fail(words_rule, words[0].name + ": \"" + words[0].code + "\" does not compile: " + log.substr(0, 600));
}

void hold(Context& c, const Compiler& compiler, const std::vector<Word>& words) {
  const Tile tile = compiler.tile();
  const Compiler::Compiled compiled = compiler.try_compile(unit_of(compiler, tile, words));
  if (compiled.status != BP_OK) blame(c, compiler, tile, words, compiled.log);
  const Module module(c, 0, compiled.code);
  for (size_t i = 0; i < words.size(); ++i) {
    named(words[i].name, [&] { words[i].run(c, module, tile, format("word_%zu", i), words[i]); });
  }
}

// A unit that a check writes itself; the words that it is about are in its name.
Module load(Context& c, const Compiler& compiler, const Tile& tile, const char* words, const std::string& kernels, uint32_t flags = 0) {
  const Compiler::Compiled compiled = compiler.try_compile(compiler.unit(tile, kernels), flags);
  c.require(compiled.status == BP_OK, words_rule, "%s: a kernel with BP_GROUP %u does not compile: %.600s", words, tile.group,
            compiled.log.c_str());
  return Module(c, 0, compiled.code);
}

template <class T>
void same(Context& c, const std::vector<T>& got, const std::vector<T>& want, const Tile& tile, const char* words, const char* rule) {
  for (size_t i = 0; i < want.size(); ++i) {
    c.require(got[i] == want[i], rule, "%s: with BP_GROUP %u value %zu of %zu is %s, expected %s", words, tile.group, i, want.size(),
              text_of(got[i]).c_str(), text_of(want[i]).c_str());
  }
}

// ---- the checks

#define OF(T, expression) +[]([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T z) { return expression; }

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
  // Signed sums that a compiler may fold, if it takes them for sums that never wrap.
  words.push_back(word<i32, i32>("i32", "(x + 1 > x)", OF(i32, i32(x != INT32_MAX))));
  words.push_back(word<i32, i64>("i64", "(x + 1 > x)", OF(i64, i32(x != INT64_MAX))));
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

#define LIBRARY64(name, function, parameters, ...)                                                   \
  library<double>(name, name parameters, OF(double, static_cast<double>(function(__VA_ARGS__))), 16, \
                  "the C library's functions of doubles, to 16 ulp")
#define X64 static_cast<long double>(x)
#define Y64 static_cast<long double>(y)

void doubles(Context& c) {
  const Compiler compiler(c, 0);
  if (!compiler.has_f64()) throw NotOffered{std::string("target \"") + compiler.target().target + "\" has no FLOAT64"};
  std::vector<Word> words = real_words<double>();
  words.push_back(word<float, double>("f64", "(f32)x", OF(double, static_cast<float>(x))));
  words.push_back(word<double, float>("f64", "(f64)x * y", OF(float, static_cast<double>(x) * static_cast<double>(y))));
  for (const Word& word : {
           LIBRARY64("bp_exp64", std::exp, "(x)", X64),
           LIBRARY64("bp_exp2_64", std::exp2, "(x)", X64),
           LIBRARY64("bp_expm1_64", std::expm1, "(x)", X64),
           LIBRARY64("bp_log64", std::log, "(x)", X64),
           LIBRARY64("bp_log2_64", std::log2, "(x)", X64),
           LIBRARY64("bp_log10_64", std::log10, "(x)", X64),
           LIBRARY64("bp_log1p64", std::log1p, "(x)", X64),
           LIBRARY64("bp_sin64", std::sin, "(x)", X64),
           LIBRARY64("bp_cos64", std::cos, "(x)", X64),
           LIBRARY64("bp_tan64", std::tan, "(x)", X64),
           LIBRARY64("bp_asin64", std::asin, "(x)", X64),
           LIBRARY64("bp_acos64", std::acos, "(x)", X64),
           LIBRARY64("bp_atan64", std::atan, "(x)", X64),
           LIBRARY64("bp_atan2_64", std::atan2, "(x, y)", X64, Y64),
           LIBRARY64("bp_sinh64", std::sinh, "(x)", X64),
           LIBRARY64("bp_cosh64", std::cosh, "(x)", X64),
           LIBRARY64("bp_tanh64", std::tanh, "(x)", X64),
           LIBRARY64("bp_asinh64", std::asinh, "(x)", X64),
           LIBRARY64("bp_acosh64", std::acosh, "(x)", X64),
           LIBRARY64("bp_atanh64", std::atanh, "(x)", X64),
           LIBRARY64("bp_pow64", std::pow, "(x, y)", X64, Y64),
           LIBRARY64("bp_fmod64", std::fmod, "(x, y)", X64, Y64),
           LIBRARY64("bp_hypot64", std::hypot, "(x, y)", X64, Y64),
           LIBRARY64("bp_erf64", std::erf, "(x)", X64),
           LIBRARY64("bp_erfc64", std::erfc, "(x)", X64),
           LIBRARY64("bp_lgamma64", std::lgamma, "(bp_fabs64(x))", std::fabs(X64)),  // beside its zeros
       }) {
    words.push_back(word);
  }
  hold(c, compiler, words);
}

// ---- what a prelude may have

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

#define LIBRARY32(name, function, parameters, ...) \
  library<float>(name, name parameters, OF(float, static_cast<float>(function(__VA_ARGS__))), 4, "BP_NATIVE_MATH: of f32, to 4 ulp")
#define X32 static_cast<double>(x)
#define Y32 static_cast<double>(y)

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
  const auto args = arguments({out.address()}, Count{0});
  module.launch(nullptr, module.prepare(module.function("natives", 1, sizeof(Count)), tile, 1, args), "natives");
  const std::vector<int32_t> has = out.get();
  std::vector<Word> words;
  if (has[0]) {
    static const Points<float> numbers = halves_and_between(half_value);
    words.push_back(word_on<float, uint16_t>(all_halves(), "bp_f16_to_f32", "bp_f16_to_f32(x)",
                                             OF(uint16_t, static_cast<float>(half_value(x))), 0, half_rule));
    words.push_back(word_on<uint16_t, float>(numbers, "bp_f32_to_f16",
                                             "x == x ? bp_f32_to_f16(x) : (u16)((bp_f32_to_f16(x) & 0x7fff) > 0x7c00)",
                                             OF(float, std::isnan(x) ? uint16_t(1) : nearest(x, 0x7c00, half_value)), 0, half_rule));
  }
  if (has[1]) {
    static const Points<float> numbers = halves_and_between(bfloat_value);
    words.push_back(word_on<float, uint16_t>(all_halves(), "bp_bf16_to_f32", "bp_bf16_to_f32(x)",
                                             OF(uint16_t, static_cast<float>(bfloat_value(x))), 0, half_rule));
    words.push_back(word_on<uint16_t, float>(numbers, "bp_f32_to_bf16",
                                             "x == x ? bp_f32_to_bf16(x) : (u16)((bp_f32_to_bf16(x) & 0x7fff) > 0x7f80)",
                                             OF(float, std::isnan(x) ? uint16_t(1) : nearest(x, 0x7f80, bfloat_value)), 0, half_rule));
  }
  if (has[2]) {
    for (const Word& word : {
             LIBRARY32("bp_exp", std::exp, "(x)", X32),         LIBRARY32("bp_exp2", std::exp2, "(x)", X32),
             LIBRARY32("bp_expm1", std::expm1, "(x)", X32),     LIBRARY32("bp_log", std::log, "(x)", X32),
             LIBRARY32("bp_log2", std::log2, "(x)", X32),       LIBRARY32("bp_log10", std::log10, "(x)", X32),
             LIBRARY32("bp_log1p", std::log1p, "(x)", X32),     LIBRARY32("bp_sin", std::sin, "(x)", X32),
             LIBRARY32("bp_cos", std::cos, "(x)", X32),         LIBRARY32("bp_tan", std::tan, "(x)", X32),
             LIBRARY32("bp_asin", std::asin, "(x)", X32),       LIBRARY32("bp_acos", std::acos, "(x)", X32),
             LIBRARY32("bp_atan", std::atan, "(x)", X32),       LIBRARY32("bp_atan2", std::atan2, "(x, y)", X32, Y32),
             LIBRARY32("bp_sinh", std::sinh, "(x)", X32),       LIBRARY32("bp_cosh", std::cosh, "(x)", X32),
             LIBRARY32("bp_tanh", std::tanh, "(x)", X32),       LIBRARY32("bp_asinh", std::asinh, "(x)", X32),
             LIBRARY32("bp_acosh", std::acosh, "(x)", X32),     LIBRARY32("bp_atanh", std::atanh, "(x)", X32),
             LIBRARY32("bp_pow", std::pow, "(x, y)", X32, Y32), LIBRARY32("bp_erf", std::erf, "(x)", X32),
             LIBRARY32("bp_erfc", std::erfc, "(x)", X32),
         }) {
      words.push_back(word);
    }
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
  const auto run = [&](const Row& row) {
    const auto args = arguments({floats.address(), halves.address(), has.address()}, row);
    module.launch(nullptr, module.prepare(module.function("rows", 3, sizeof(Row)), tile, 1, args), words);
  };
  run({0, 1, 0, 0});
  if (!has.get()[0]) throw NotOffered{"the prelude defines no BP_NATIVE_F16_ROWS"};
  const auto told = [&](const Row& row, int64_t i) {
    return format("%s: element %lld of %lld from place %lld to %lld", row.to_f32 ? "bp_f16_row_to_f32" : "bp_f32_row_to_f16",
                  static_cast<long long>(i - row.to), static_cast<long long>(row.n), static_cast<long long>(row.from),
                  static_cast<long long>(row.to));
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
      const std::vector<float> wide = floats.get();
      for (int64_t i = 0; i < 128; ++i) {
        const bool is_row = i >= up.to && i < up.to + n;
        const float want = is_row ? static_cast<float>(half_value(bits_of_halves[static_cast<size_t>(i - up.to + up.from)])) : -77.0f;
        const float got = wide[static_cast<size_t>(i)];
        c.require(agrees(got, want, 0), rule, "%s is %s, expected %s", told(up, i).c_str(), text_of(got).c_str(), text_of(want).c_str());
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
        c.require(std::isnan(value) ? (got & 0x7fff) > 0x7c00 : got == want, rule, "%s is %s, expected %s", told(down, i).c_str(),
                  text_of(got).c_str(), text_of(want).c_str());
      }
    }
  }
  for (const uint64_t address : {floats.address(), halves.address(), has.address()}) c.free(0, address);
}

// ---- groups and items

constexpr char items_rule[] =
    "BP_ITEM, BP_GROUP_ID(d), BP_GROUPS(d): item in the group; group and number of groups of dimension d (0, 1, 2)";

void groups(Context& c) {
  const Compiler compiler(c, 0);
  for (const Tile& tile : compiler.tiles()) {
    const char* words = "BP_ITEM, BP_GROUP_ID, BP_GROUPS";
    const Module module = load(c, compiler, tile, words, R"(
typedef struct { i64 unused; } Nothing;
BP_KERNEL(places, 1, Nothing, BP_GLOBAL i32* BP_RESTRICT out) {
  const i64 group = ((i64)BP_GROUP_ID(2) * BP_GROUPS(1) + BP_GROUP_ID(1)) * BP_GROUPS(0) + BP_GROUP_ID(0);
  const i64 at = 8 * (group * BP_GROUP + BP_ITEM);
  out[at] = BP_ITEM;
  out[at + 1] = BP_GROUP_ID(0); out[at + 2] = BP_GROUP_ID(1); out[at + 3] = BP_GROUP_ID(2);
  out[at + 4] = BP_GROUPS(0); out[at + 5] = BP_GROUPS(1); out[at + 6] = BP_GROUPS(2);
  out[at + 7] += 1;
}
)");
    constexpr int32_t grid[3] = {4, 3, 2};
    std::vector<int32_t> want;
    for (int32_t z = 0; z < grid[2]; ++z) {
      for (int32_t y = 0; y < grid[1]; ++y) {
        for (int32_t x = 0; x < grid[0]; ++x) {
          for (int32_t item = 0; item < static_cast<int32_t>(tile.group); ++item) {
            want.insert(want.end(), {item, x, y, z, grid[0], grid[1], grid[2], 1});
          }
        }
      }
    }
    const DeviceArray<int32_t> out(c, 0, want.size());
    const auto args = arguments({out.address()}, Count{0});
    bp_launch launch = module.prepare(module.function("places", 1, sizeof(Count)), tile, grid[0], args);
    launch.grid[1] = grid[1];
    launch.grid[2] = grid[2];
    module.launch(nullptr, launch, "places");
    same(c, out.get(), want, tile, words, items_rule);
    module.unload();
  }
}

// Items write what others read, in local memory and in memory of the device, more than once; then the largest array there may be.
void local(Context& c) {
  const char* words = "BP_LOCAL_ARRAY, BP_BARRIER";
  const char* rule = "BP_BARRIER(): all items of the group are here, and see what was written to local and global memory before";
  const Compiler compiler(c, 0);
  const uint32_t largest = compiler.target().local_bytes / 4;
  for (const Tile& tile : compiler.tiles()) {
    const Module module = load(c, compiler, tile, words, format("#define LARGEST %u\n", largest) + R"(
typedef struct { i64 n; } Count;
#define TILE (BP_GROUP * BP_PER_ITEM)
BP_KERNEL(reverse, 2, Count, BP_GLOBAL i32* BP_RESTRICT out, BP_GLOBAL const i32* BP_RESTRICT in) {
  BP_LOCAL_ARRAY(i32, s, BP_GROUP * BP_PER_ITEM);
  BP_LOCAL_ARRAY(i64, sums, BP_GROUP);
  const i64 first = (i64)BP_GROUP_ID(0) * TILE;
  i64 sum = 0;
  for (i32 round = 1; round <= 5; ++round) {
    for (i32 e = BP_ITEM; e < TILE; e += BP_GROUP) s[e] = in[first + e] * round;
    BP_BARRIER();
    for (i32 e = BP_ITEM; e < TILE; e += BP_GROUP) sum += (i64)s[TILE - 1 - e] * (e + 1);
    BP_BARRIER();
  }
  sums[BP_ITEM] = sum;
  BP_BARRIER();
  i64 all = 0;
  for (i32 item = 0; item < BP_GROUP; ++item) all += sums[item];
  for (i32 e = BP_ITEM; e < TILE; e += BP_GROUP) out[first + e] = in[first + TILE - 1 - e] + (i32)all;
}
BP_KERNEL(neighbour, 2, Count, BP_GLOBAL i32* BP_RESTRICT out, BP_GLOBAL i32* BP_RESTRICT shared) {
  const i64 first = (i64)BP_GROUP_ID(0) * BP_GROUP;
  for (i32 round = 0; round < 5; ++round) {
    shared[first + BP_ITEM] = BP_ITEM * 10 + round;
    BP_BARRIER();
    out[first + BP_ITEM] += shared[first + (BP_ITEM + 1) % BP_GROUP];
    BP_BARRIER();
  }
}
BP_KERNEL(largest, 1, Count, BP_GLOBAL i32* BP_RESTRICT out) {
  BP_LOCAL_ARRAY(i32, s, LARGEST);
  for (i32 e = BP_ITEM; e < LARGEST; e += BP_GROUP) s[e] = 3 * e + BP_GROUP_ID(0);
  BP_BARRIER();
  for (i32 e = BP_ITEM; e < LARGEST; e += BP_GROUP) out[(i64)BP_GROUP_ID(0) * LARGEST + e] = s[LARGEST - 1 - e];
}
)");
    constexpr uint32_t several = 4;
    const auto tile_size = static_cast<int32_t>(tile.size()), items = static_cast<int32_t>(tile.group);
    std::vector<int32_t> in(several * tile.size()), want(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 31 % 1009) - 500;
    for (size_t first = 0; first < in.size(); first += tile.size()) {
      int64_t sum = 0;
      for (int32_t e = 0; e < tile_size; ++e) sum += 15 * int64_t{in[first + static_cast<size_t>(tile_size - 1 - e)]} * (e + 1);
      for (size_t e = 0; e < tile.size(); ++e) want[first + e] = in[first + tile.size() - 1 - e] + static_cast<int32_t>(sum);
    }
    const DeviceArray<int32_t> out(c, 0, in.size()), input(c, 0, in);
    const auto reversing = arguments({out.address(), input.address()}, Count{0});
    module.launch(nullptr, module.prepare(module.function("reverse", 2, sizeof(Count)), tile, several, reversing), "reverse");
    same(c, out.get(), want, tile, words, rule);

    const DeviceArray<int32_t> seen(c, 0, several * tile.group), shared(c, 0, several * tile.group);
    const auto passing = arguments({seen.address(), shared.address()}, Count{0});
    module.launch(nullptr, module.prepare(module.function("neighbour", 2, sizeof(Count), 3), tile, several, passing), "neighbour");
    want.clear();
    for (uint32_t group = 0; group < several; ++group) {
      for (int32_t item = 0; item < items; ++item) want.push_back((item + 1) % items * 50 + 10);
    }
    same(c, seen.get(), want, tile, "BP_BARRIER", rule);

    const DeviceArray<int32_t> whole(c, 0, 2 * largest);
    const auto filling = arguments({whole.address()}, Count{0});
    module.launch(nullptr, module.prepare(module.function("largest", 1, sizeof(Count)), tile, 2, filling), "largest");
    want.assign(2 * largest, 0);
    for (uint32_t i = 0; i < 2 * largest; ++i) want[i] = static_cast<int32_t>(3 * (largest - 1 - i % largest) + i / largest);
    same(c, whole.get(), want, tile, "BP_LOCAL_ARRAY of local_bytes", "local_bytes: work-group memory of a group");
    module.unload();
  }
}

void atomics(Context& c) {
  const char* rule = "where the target's `atomics` say so: adds to device memory; compare and swap gives what was there before";
  const Compiler compiler(c, 0);
  const Tile tile = compiler.tile();
  constexpr uint32_t groups = 300;
  constexpr size_t cells = 5;
  const uint32_t named = compiler.target().atomics;
  if (!named) throw NotOffered{std::string("target \"") + compiler.target().target + "\" names no atomics"};
  // Each item adds its number, which is small, to one of five cells. Sums of f32 stay whole numbers that have a place in it.
  const auto hold_adds = [&](auto type, uint32_t bit, const char* word, const std::string& statement) {
    using T = decltype(type);
    if (!(named & bit)) return;
    const char* element = type_name<T>;
    const Module module = load(c, compiler, tile, word,
                               std::string("typedef struct { i64 unused; } Nothing;\nBP_KERNEL(add, 1, Nothing, BP_GLOBAL ") + element +
                                   "* BP_RESTRICT out) {\n  const i32 cell = (BP_GROUP_ID(0) + BP_ITEM) % 5;\n  const " + element +
                                   " v = (" + element + ")(BP_ITEM % 3 + 1);\n  " + statement + "\n}\n");
    std::vector<T> want(cells, T(100));
    const DeviceArray<T> out(c, 0, want);
    const auto args = arguments({out.address()}, Count{0});
    module.launch(nullptr, module.prepare(module.function("add", 1, sizeof(Count)), tile, groups, args), word);
    for (uint32_t group = 0; group < groups; ++group) {
      for (uint32_t item = 0; item < tile.group; ++item) want[(group + item) % cells] += static_cast<T>(item % 3 + 1);
    }
    same(c, out.get(), want, tile, word, rule);
    module.unload();
  };
  const auto swap = [](const char* word, const char* type) {
    return std::string(type) + " seen = out[cell], before;\n  while ((before = " + word +
           "(out + cell, seen, seen + v)) != seen) seen = before;";
  };
  hold_adds(int32_t(), BP_ATOMIC_ADD_I32, "BP_ATOMIC_ADD_I32", "BP_ATOMIC_ADD_I32(out + cell, v);");
  hold_adds(int64_t(), BP_ATOMIC_ADD_I64, "BP_ATOMIC_ADD_I64", "BP_ATOMIC_ADD_I64(out + cell, v);");
  hold_adds(float(), BP_ATOMIC_ADD_F32, "BP_ATOMIC_ADD_F32", "BP_ATOMIC_ADD_F32(out + cell, v);");
  hold_adds(uint32_t(), BP_ATOMIC_CAS_32, "BP_ATOMIC_CAS_32", swap("BP_ATOMIC_CAS_32", "u32"));
  hold_adds(uint64_t(), BP_ATOMIC_CAS_64, "BP_ATOMIC_CAS_64", swap("BP_ATOMIC_CAS_64", "u64"));
}

void shuffle(Context& c) {
  const Compiler compiler(c, 0);
  const uint32_t subgroup = compiler.target().subgroup_size;
  if (!subgroup) throw NotOffered{std::string("target \"") + compiler.target().target + "\" has no subgroups"};
  const Tile tile = {std::max(compiler.target().group_size, subgroup), 1};
  std::string body =
      "  const u32 own = (u32)BP_ITEM * 2654435761u + (u32)BP_GROUP_ID(0);\n"
      "  const i64 first = (i64)BP_GROUP_ID(0) * BP_GROUP + BP_ITEM;\n";
  std::vector<uint32_t> masks;
  for (uint32_t mask = 1; mask < subgroup; mask = mask < subgroup / 2 ? mask * 2 : subgroup - (mask == subgroup - 1 ? 0 : 1))
    masks.push_back(mask);
  constexpr uint32_t groups = 3;
  std::vector<uint32_t> want;
  for (size_t i = 0; i < masks.size(); ++i) {
    body += format("  out[first + %zu * BP_GROUP * %u] = BP_SHUFFLE_XOR(own, %u);\n", i, groups, masks[i]);
    for (uint32_t group = 0; group < groups; ++group) {
      for (uint32_t item = 0; item < tile.group; ++item) want.push_back((item ^ masks[i]) * 2654435761u + group);
    }
  }
  const Module module =
      load(c, compiler, tile, "BP_SHUFFLE_XOR",
           "typedef struct { i64 unused; } Nothing;\nBP_KERNEL(exchange, 1, Nothing, BP_GLOBAL u32* BP_RESTRICT out) {\n" + body + "}\n");
  const DeviceArray<uint32_t> out(c, 0, want.size());
  const auto args = arguments({out.address()}, Count{0});
  module.launch(nullptr, module.prepare(module.function("exchange", 1, sizeof(Count)), tile, groups, args), "BP_SHUFFLE_XOR");
  same(c, out.get(), want, tile, "BP_SHUFFLE_XOR",
       "where subgroup_size is not 0: the u32 x of the item whose number in the subgroup is the own one xor mask");
}

// ---- functions, arguments, assertions

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
  const auto args = arguments({out.address(), input.address()}, Params{static_cast<int64_t>(in.size()), 3, 0});
  module.launch(nullptr, module.prepare(module.function("functions", 2, sizeof(Params)), tile, 3, args), "functions");
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
  const auto args = arguments(pointers, Count{n});
  module.launch(nullptr, module.prepare(module.function("sixteen", 16, sizeof(Count)), tile, tile.groups(n), args), "sixteen");
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
  const auto block = arguments({out.address()}, mixed);
  module.launch(nullptr, module.prepare(module.function("one", 1, sizeof(Mixed)), tile, 1, block), "one");
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
      const auto args = arguments({out.address()}, Count{debug ? 100 : -5});
      module.launch(nullptr, module.prepare(module.function("asserting", 1, sizeof(Count)), tile, tile.groups(100), args), "BP_ASSERT");
      same(c, out.get(), want, tile, what,
           "BP_ASSERT(condition): nothing, or with BP_COMPILE_DEBUG: the device faults if it does not hold");
    });
  }
}

#undef OF
#undef LIBRARY64
#undef LIBRARY32
#undef X64
#undef Y64
#undef X32
#undef Y32

}  // namespace dialect_impl

Checks dialect_checks() {
  using namespace dialect_impl;
  constexpr uint32_t needs = needs_compiler | needs_module;
  return {
      {"dialect.integers", "sizes, wrapping arithmetic, conversions", needs, integers},
      {"dialect.floats", "arithmetic and words of f32, to the last bit", needs, floats},
      {"dialect.doubles", "the same of f64, and the C library's words", needs, doubles},
      {"dialect.natives", "the optional words, where they are defined", needs, natives},
      {"dialect.rows", "rows of halves, where they are defined", needs, rows},
      {"dialect.groups", "items and groups know their numbers", needs, groups},
      {"dialect.local", "local memory and barriers", needs, local},
      {"dialect.atomics", "additions and swaps of several items", needs, atomics},
      {"dialect.shuffle", "values of other items of a subgroup", needs, shuffle},
      {"dialect.functions", "functions, with pointers of both kinds", needs, functions},
      {"dialect.arguments", "kernels of 16 pointers and of one", needs, arguments_of},
      {"dialect.assertions", "assertions that hold, or are left out", needs, assertions},
  };
}

}  // namespace backplane::check
