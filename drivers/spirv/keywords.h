// drivers/spirv/keywords.h: the names that the grammar knows: C's, the dialect's types, and what the prelude's words stand for.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "tokens.h"

namespace backplane::driver::spirv {

enum class Keyword : uint8_t {
  none,
  // types; C's own are read as those of the dialect
  type_void,
  type_i8,
  type_u8,
  type_i16,
  type_u16,
  type_i32,
  type_u32,
  type_i64,
  type_u64,
  type_f32,
  type_f64,
  word_int,
  word_char,
  word_short,
  word_long,
  word_signed,
  word_unsigned,
  word_struct,
  word_enum,
  word_typedef,
  // qualifiers
  word_const,
  word_volatile,
  word_restrict,
  word_static,
  word_inline,
  word_global,
  word_local,
  word_kernel,
  word_unroll,
  // statements and operators
  word_if,
  word_else,
  word_for,
  word_while,
  word_do,
  word_switch,
  word_case,
  word_default,
  word_break,
  word_continue,
  word_return,
  word_sizeof,
  // known, and refused by name
  word_goto,
  word_union,
  word_other,
};

inline const std::vector<std::pair<std::string_view, Keyword>>& keywords() {
  using enum Keyword;
  static const std::vector<std::pair<std::string_view, Keyword>> all = {
      {"void", type_void},
      {"i8", type_i8},
      {"u8", type_u8},
      {"i16", type_i16},
      {"u16", type_u16},
      {"i32", type_i32},
      {"u32", type_u32},
      {"i64", type_i64},
      {"u64", type_u64},
      {"f32", type_f32},
      {"f64", type_f64},
      {"float", type_f32},
      {"double", type_f64},
      {"int", word_int},
      {"char", word_char},
      {"short", word_short},
      {"long", word_long},
      {"signed", word_signed},
      {"unsigned", word_unsigned},
      {"struct", word_struct},
      {"enum", word_enum},
      {"typedef", word_typedef},
      {"const", word_const},
      {"volatile", word_volatile},
      {"restrict", word_restrict},
      {"static", word_static},
      {"inline", word_inline},
      {"__global", word_global},
      {"__local", word_local},
      {"__kernel", word_kernel},
      {"__unroll", word_unroll},
      {"if", word_if},
      {"else", word_else},
      {"for", word_for},
      {"while", word_while},
      {"do", word_do},
      {"switch", word_switch},
      {"case", word_case},
      {"default", word_default},
      {"break", word_break},
      {"continue", word_continue},
      {"return", word_return},
      {"sizeof", word_sizeof},
      {"goto", word_goto},
      {"union", word_union},
      {"_Bool", word_other},
      {"_Generic", word_other},
      {"_Atomic", word_other},
      {"_Complex", word_other},
      {"__attribute__", word_other},
      {"__asm__", word_other},
      {"asm", word_other},
      {"extern", word_other},
      {"register", word_other},
      {"auto", word_other},
      {"half", word_other},
      {"bool", word_other},
  };
  return all;
}

}  // namespace backplane::driver::spirv
