// drivers/spirv/builtins.h: the words that a target supplies. Their names are the dialect's, where that has a function's name; the
// prelude's macros stand for the others.
#pragma once

#include <string_view>

#include "tree.h"

namespace backplane::driver::spirv {

enum class Word : uint8_t {
  item,
  group_id,
  groups,
  barrier,
  shuffle_xor,
  bits,  // the same bits in the type of the result
  square_root,
  magnitude,
  floor,
  ceiling,
  truncate,
  round,
  fused,
  copy_sign,
  raw_divide,
  raw_square_root,  // as the device has them, however exact
  highest_bit,      // its number, of a u32 that is not 0
  atomic_add,
  atomic_swap,  // atomic_swap: compare and swap, the old value
  half_to_f32,
  f32_to_half,
};

struct Builtin {
  std::string_view name;     // in a text
  std::string_view dialect;  // what a printer writes: the dialect's word; "" of a word that only the prelude uses
  Word word;
  char result;             // of what types() says
  std::string_view takes;  // the types of its parameters, one letter each
};
// v void, w i32, u u32, l i64, U u64, h u16, f f32, d f64; of a parameter, p: a pointer to device memory, of which the last
// argument has the type; c: a constant, 0 to 2

/// NULL: there is no word of that name.
const Builtin* find_builtin(std::string_view name);

/// The type of a letter other than p and c.
Kind kind_of_letter(char letter);

}  // namespace backplane::driver::spirv
