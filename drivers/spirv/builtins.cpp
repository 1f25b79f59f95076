// drivers/spirv/builtins.cpp: the table of words.
#include "builtins.h"

#include <unordered_map>

namespace backplane::driver::spirv {
namespace {

constexpr Builtin kAll[] = {
    {"__bp_item", "BP_ITEM", Word::item, 'w', ""},
    {"__bp_group_id", "BP_GROUP_ID", Word::group_id, 'w', "c"},
    {"__bp_groups", "BP_GROUPS", Word::groups, 'w', "c"},
    {"__bp_barrier", "BP_BARRIER", Word::barrier, 'v', ""},
    {"__bp_shuffle_xor", "BP_SHUFFLE_XOR", Word::shuffle_xor, 'u', "uu"},
    {"bp_as_u32", "bp_as_u32", Word::bits, 'u', "f"},
    {"bp_as_f32", "bp_as_f32", Word::bits, 'f', "u"},
    {"bp_as_u64", "bp_as_u64", Word::bits, 'U', "d"},
    {"bp_as_f64", "bp_as_f64", Word::bits, 'd', "U"},
    {"bp_sqrt", "bp_sqrt", Word::square_root, 'f', "f"},
    {"bp_fabs", "bp_fabs", Word::magnitude, 'f', "f"},
    {"bp_floor", "bp_floor", Word::floor, 'f', "f"},
    {"bp_ceil", "bp_ceil", Word::ceiling, 'f', "f"},
    {"bp_trunc", "bp_trunc", Word::truncate, 'f', "f"},
    {"bp_rint", "bp_rint", Word::round, 'f', "f"},
    {"bp_fma", "bp_fma", Word::fused, 'f', "fff"},
    {"bp_copysign", "bp_copysign", Word::copy_sign, 'f', "ff"},
    {"bp_sqrt64", "bp_sqrt64", Word::square_root, 'd', "d"},
    {"bp_fabs64", "bp_fabs64", Word::magnitude, 'd', "d"},
    {"bp_floor64", "bp_floor64", Word::floor, 'd', "d"},
    {"bp_ceil64", "bp_ceil64", Word::ceiling, 'd', "d"},
    {"bp_trunc64", "bp_trunc64", Word::truncate, 'd', "d"},
    {"bp_rint64", "bp_rint64", Word::round, 'd', "d"},
    {"bp_fma64", "bp_fma64", Word::fused, 'd', "ddd"},
    {"bp_copysign64", "bp_copysign64", Word::copy_sign, 'd', "dd"},
    {"__bp_divide", "", Word::raw_divide, 'f', "ff"},
    {"__bp_sqrt", "", Word::raw_square_root, 'f', "f"},
    {"__bp_divide64", "", Word::raw_divide, 'd', "dd"},
    {"__bp_sqrt64", "", Word::raw_square_root, 'd', "d"},
    {"__bp_highest_bit", "", Word::highest_bit, 'w', "u"},
    {"__bp_atomic_add_i32", "BP_ATOMIC_ADD_I32", Word::atomic_add, 'v', "pw"},
    {"__bp_atomic_add_i64", "BP_ATOMIC_ADD_I64", Word::atomic_add, 'v', "pl"},
    {"__bp_atomic_add_f32", "BP_ATOMIC_ADD_F32", Word::atomic_add, 'v', "pf"},
    {"__bp_atomic_cas_32", "BP_ATOMIC_CAS_32", Word::atomic_swap, 'u', "puu"},
    {"__bp_atomic_cas_64", "BP_ATOMIC_CAS_64", Word::atomic_swap, 'U', "pUU"},
    {"__bp_f16_to_f32", "bp_f16_to_f32", Word::half_to_f32, 'f', "h"},
    {"__bp_f32_to_f16", "bp_f32_to_f16", Word::f32_to_half, 'h', "f"},
};

}  // namespace

const Builtin* find_builtin(std::string_view name) {
  static const auto table = [] {
    std::unordered_map<std::string_view, const Builtin*> out;
    for (const Builtin& one : kAll) out.emplace(one.name, &one);
    return out;
  }();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

Kind kind_of_letter(char letter) {
  switch (letter) {
    case 'w':
      return Kind::i32;
    case 'u':
      return Kind::u32;
    case 'l':
      return Kind::i64;
    case 'U':
      return Kind::u64;
    case 'h':
      return Kind::u16;
    case 'f':
      return Kind::f32;
    case 'd':
      return Kind::f64;
    default:
      return Kind::none;
  }
}

}  // namespace backplane::driver::spirv
