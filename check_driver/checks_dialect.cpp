// check_driver/checks_dialect.cpp: family "dialect": every word of docs/dialect.md in a kernel of its own, against values of this host.
#include "words.h"

namespace backplane::check {

Checks dialect_checks() {
  using namespace dialect_impl;
  constexpr uint64_t needs = needs_compiler | needs_module;
  return {
      {"dialect.integers", "sizes, wrapping arithmetic, conversions", needs, integers},
      {"dialect.overflow", "no compiler takes signed sums for exact", needs, overflow},
      {"dialect.floats", "arithmetic and words of f32, to the last bit", needs, floats},
      {"dialect.doubles", "the same of f64, and the C library's words", needs, doubles},
      {"dialect.natives", "the optional words, where they are defined", needs, natives},
      {"dialect.rows", "rows of halves, where they are defined", needs, rows},
      {"dialect.vectors", "vectors and blocks, where they are defined", needs, vectors},
      {"dialect.groups", "items and groups know their numbers", needs, groups},
      {"dialect.local", "local memory and barriers", needs, local},
      {"dialect.launches", "launches at once have local memory each", needs, local_of_launches},
      {"dialect.atomics", "additions and swaps of several items", needs, atomics},
      {"dialect.shuffle", "values of other items of a subgroup", needs, shuffle},
      {"dialect.loops", "tails and folds of lengths around a group's", needs, loops},
      {"dialect.functions", "functions, with pointers of both kinds", needs, functions},
      {"dialect.arguments", "kernels of 16 pointers and of one", needs, arguments_of},
      {"dialect.assertions", "assertions that hold, or are left out", needs, assertions},
  };
}

}  // namespace backplane::check
