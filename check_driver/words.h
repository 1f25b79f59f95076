// check_driver/words.h: words of the dialect in a kernel of their own, and units that a check of the dialect writes itself.
#pragma once

#include <ctype.h>

#include <functional>

#include "points.h"

namespace backplane::check {
namespace dialect_impl {

inline constexpr char words_rule[] = "docs/dialect.md, \"The prelude\": what a prelude defines";
inline constexpr char integer_rule[] = "integers; arithmetic on i32 and i64 wraps";
inline constexpr char exact_rule[] =
    "IEEE 754; + - * / and bp_sqrt rounded to nearest; the others of f32 exact to the last bit; NaN and infinity must work";

// What an expression of x, y and z gives, as a function of this host.
#define OF(T, expression) +[]([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T z) { return expression; }

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
inline bool uses(const std::string& code, char letter) {
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
    module.run(kernel, tile, tile.groups(p.size()), {out.address(), x.address(), y.address(), z.address()},
               Count{static_cast<int64_t>(p.size())}, 1, word.name);
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

// Words of the C library's functions, bp_exp or bp_exp64, against the host's in more precision.
template <class T>
class LibraryWords {
 public:
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;

  LibraryWords(double ulps, const char* rule) : ulps_(ulps), rule_(rule) {}
  void add(const std::string& function, const char* parameters, T (*want)(T, T, T)) {
    const char* ending = std::is_same_v<T, float> ? "" : isdigit(static_cast<unsigned char>(function.back())) ? "_64" : "64";
    const std::string name = "bp_" + function + ending;
    words.push_back(word_on<T, T>(library_points<T>(), name.c_str(), (name + parameters).c_str(), want, ulps_, rule_));
  }
#define LIBRARY(function, parameters, ...) add(#function, parameters, OF(T, static_cast<T>(std::function(__VA_ARGS__))))
  // What a prelude defines of both types.
  void add_all() {
    LIBRARY(exp, "(x)", Wide(x));
    LIBRARY(exp2, "(x)", Wide(x));
    LIBRARY(expm1, "(x)", Wide(x));
    LIBRARY(log, "(x)", Wide(x));
    LIBRARY(log2, "(x)", Wide(x));
    LIBRARY(log10, "(x)", Wide(x));
    LIBRARY(log1p, "(x)", Wide(x));
    LIBRARY(sin, "(x)", Wide(x));
    LIBRARY(cos, "(x)", Wide(x));
    LIBRARY(tan, "(x)", Wide(x));
    LIBRARY(asin, "(x)", Wide(x));
    LIBRARY(acos, "(x)", Wide(x));
    LIBRARY(atan, "(x)", Wide(x));
    LIBRARY(atan2, "(x, y)", Wide(x), Wide(y));
    LIBRARY(sinh, "(x)", Wide(x));
    LIBRARY(cosh, "(x)", Wide(x));
    LIBRARY(tanh, "(x)", Wide(x));
    LIBRARY(asinh, "(x)", Wide(x));
    LIBRARY(acosh, "(x)", Wide(x));
    LIBRARY(atanh, "(x)", Wide(x));
    LIBRARY(pow, "(x, y)", Wide(x), Wide(y));
    LIBRARY(erf, "(x)", Wide(x));
    LIBRARY(erfc, "(x)", Wide(x));
  }
#undef LIBRARY

  std::vector<Word> words;

 private:
  const double ulps_;
  const char* const rule_;
};

// Tries the words in one unit. If that does not compile, throws a Failure with the name of a word without which the others do.
void hold(Context& c, const Compiler& compiler, const std::vector<Word>& words);

// A unit that a check writes itself; the words that it is about are in its name.
Module load(Context& c, const Compiler& compiler, const Tile& tile, const char* words, const std::string& kernels, uint32_t flags = 0);

template <class T>
void same(Context& c, const std::vector<T>& got, const std::vector<T>& want, const Tile& tile, const char* words, const char* rule) {
  for (size_t i = 0; i < want.size(); ++i) {
    c.require(got[i] == want[i], rule, "%s: with BP_GROUP %u value %zu of %zu is %s, expected %s", words, tile.group, i, want.size(),
              text_of(got[i]).c_str(), text_of(want[i]).c_str());
  }
}

// The checks, by what they are about.
void integers(Context& c);
void overflow(Context& c);
void floats(Context& c);
void doubles(Context& c);
void natives(Context& c);
void rows(Context& c);
void vectors(Context& c);
void groups(Context& c);
void local(Context& c);
void local_of_launches(Context& c);
void atomics(Context& c);
void shuffle(Context& c);
void loops(Context& c);
void functions(Context& c);
void arguments_of(Context& c);
void assertions(Context& c);

}  // namespace dialect_impl
}  // namespace backplane::check
