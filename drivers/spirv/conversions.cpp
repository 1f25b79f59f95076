// drivers/spirv/conversions.cpp: C's conversions of numbers, booleans and pointers.
#include "emitter.h"

namespace backplane::driver::spirv {

/// An integer of 32 bits as one of 8 or 16: the low bits, extended.
uint32_t Emitter::fitted(uint32_t id, Kind kind) {
  const uint32_t word = int_type(32);
  switch (kind) {
    case Kind::u8:
      return instruction(OpBitwiseAnd, word, {id, u32(0xff)});
    case Kind::u16:
      return instruction(OpBitwiseAnd, word, {id, u32(0xffff)});
    case Kind::i8:
    case Kind::i16: {
      const uint32_t shift = u32(kind == Kind::i8 ? 24 : 16);
      return instruction(OpShiftRightArithmetic, word, {instruction(OpShiftLeftLogical, word, {id, shift}), shift});
    }
    default:
      return id;
  }
}

/// An integer of 32 bits as one of 64.
uint32_t Emitter::sign_extended(uint32_t id) {
  const uint32_t wide = int_type(64);
  if (!facts_.hide_sign || !is_vulkan()) return instruction(OpSConvert, wide, {id});
  constexpr uint32_t kSign = 1u << 31;
  const uint32_t flipped = instruction(OpUConvert, wide, {instruction(OpBitwiseXor, int_type(32), {id, u32(kSign)})});
  return instruction(OpISub, wide, {flipped, int_constant(64, kSign)});
}

uint32_t Emitter::convert_number(uint32_t id, const Type& from, const Type& to) {
  if (&from == &to) return id;
  const uint32_t type = register_type(to);
  if (from.kind == Kind::boolean) {
    const bool is_real = to.is_real();
    const uint32_t one = is_real ? real_constant(to, 1) : int_constant(width_of(to), 1);
    const uint32_t zero = is_real ? real_constant(to, 0) : int_constant(width_of(to), 0);
    return instruction(OpSelect, type, {id, one, zero});
  }
  if (to.kind == Kind::boolean) {
    if (from.is_real()) return instruction(OpFUnordNotEqual, type, {id, real_constant(from, 0)});
    return instruction(OpINotEqual, type, {id, int_constant(width_of(from), 0)});
  }
  if (from.is_real() && to.is_real()) return instruction(OpFConvert, type, {id});
  if (to.is_real()) return instruction(from.is_signed() ? OpConvertSToF : OpConvertUToF, type, {id});
  if (from.is_real()) {
    const bool is_unsigned = to.kind == Kind::u32 || to.kind == Kind::u64;
    return fitted(instruction(is_unsigned ? OpConvertFToU : OpConvertFToS, type, {id}), to.kind);
  }
  if (width_of(from) != width_of(to)) {
    id = width_of(to) == 64 && from.is_signed() ? sign_extended(id) : instruction(OpUConvert, type, {id});
  }
  const bool fits = from.size() < to.size() && (!from.is_signed() || to.is_signed());
  return to.size() < 4 && !fits ? fitted(id, to.kind) : id;
}

Value Emitter::convert(const Expression& e) {
  const Type &from = *e.a->type, &to = *e.type;
  if (to.kind == Kind::none) {
    if (e.a->type->kind != Kind::array) value(*e.a);
    return {};
  }
  const Value a = value(*e.a);
  if (from.is_pointer() || to.is_pointer()) return convert_pointer(a, from, to, e.line);
  return {convert_number(a.id, from, to)};
}

Value Emitter::convert_pointer(const Value& pointer, const Type& from, const Type& to, uint32_t line) {
  const bool is_local = (from.is_pointer() ? from : to).space == Space::local;
  if (to.kind == Kind::boolean) {
    if (is_local && is_vulkan()) return {assembler_.constant(OpConstantTrue, {bool_type()})};
    const uint32_t number = is_vulkan() ? pointer.id : instruction(OpConvertPtrToU, int_type(64), {pointer.id});
    return {instruction(OpINotEqual, bool_type(), {number, int_constant(64, 0)})};
  }
  if (is_vulkan() && !is_local) {  // a number already; that of a null pointer may have 32 bits
    return {from.is_pointer() || width_of(from) == 64 ? pointer.id : index_of_width(64, pointer.id, from)};
  }
  if (is_vulkan()) {
    if (!from.is_pointer()) fail(line, "a null pointer to local memory");
    const uint64_t had = from.element->size(), has = to.element->size();
    if (had == has) return pointer;
    const uint32_t bytes = scaled(pointer.id, had, 32);
    const auto known = known_.find(bytes);
    if (known != known_.end()) return {u32(static_cast<uint64_t>(known->second) / has), pointer.base};
    if (had % has == 0) return {scaled(pointer.id, had / has, 32), pointer.base};
    return {instruction(OpUDiv, int_type(32), {bytes, u32(has)}), pointer.base};
  }
  const uint32_t type = register_type(to);
  if (!from.is_pointer()) {
    return {instruction(OpConvertUToPtr, type, {width_of(from) == 64 ? pointer.id : index_of_width(64, pointer.id, from)})};
  }
  if (!to.is_pointer()) return {instruction(OpConvertPtrToU, type, {pointer.id})};
  if (register_type(from) == type) return pointer;
  return {instruction(OpBitcast, type, {pointer.id})};
}

}  // namespace backplane::driver::spirv
