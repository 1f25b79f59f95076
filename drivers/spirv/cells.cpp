// drivers/spirv/cells.cpp: what is loaded and stored: cells of memory and values of registers.
#include "emitter.h"

namespace backplane::driver::spirv {

uint32_t Emitter::from_cell(uint32_t cell, const Type& type, uint32_t cell_type) {
  const uint32_t wanted = register_type(type);
  if (wanted == cell_type || !type.is_integer()) return cell;
  return instruction(type.is_signed() ? OpSConvert : OpUConvert, wanted, {cell});
}

uint32_t Emitter::to_cell(uint32_t value, const Type& type, uint32_t cell_type) {
  if (register_type(type) == cell_type || !type.is_integer()) return value;
  return instruction(OpUConvert, cell_type, {value});
}

/// Whether it is a part of a 32-bit word of device memory: the device loads no cells of that width.
bool Emitter::is_part_of_word(const Place& at) const {
  if (at.where != Place::Where::address || !at.type->is_integer()) return false;
  return (at.type->size() == 1 && !facts_.memory_8) || (at.type->size() == 2 && !facts_.memory_16);
}

/// The number of a byte's bit in its word, of the byte's place in memory.
uint32_t Emitter::bit_of(uint32_t bytes) {
  const uint32_t word = int_type(32);
  return instruction(OpShiftLeftLogical, word, {instruction(OpBitwiseAnd, word, {bytes, u32(3)}), u32(3)});
}

/// Other items may write the other bytes of the word meanwhile: each changes its own bits.
void Emitter::store_part(uint32_t pointer, uint32_t scope, uint32_t bytes, uint64_t size, uint32_t value) {
  const uint32_t word = int_type(32), shift = bit_of(bytes), bits = u32(size == 1 ? 0xff : 0xffff);
  const uint32_t mask = instruction(OpNot, word, {instruction(OpShiftLeftLogical, word, {bits, shift})});
  const uint32_t moved = instruction(OpShiftLeftLogical, word, {instruction(OpBitwiseAnd, word, {value, bits}), shift});
  instruction(OpAtomicAnd, word, {pointer, u32(scope), u32(SemanticsRelaxed), mask});
  instruction(OpAtomicOr, word, {pointer, u32(scope), u32(SemanticsRelaxed), moved});
}

/// The word of device memory that has the place, and the place's low bits.
std::pair<uint32_t, uint32_t> Emitter::word_of(const Place& at) {
  const uint32_t word = int_type(32), wide = int_type(64);
  const uint32_t address = at.distance ? sum(at.root, int_constant(64, at.distance), 64) : at.root;
  const uint32_t aligned = instruction(OpBitwiseAnd, wide, {address, int_constant(64, ~uint64_t{3})});
  return {instruction(OpConvertUToPtr, pointer_type(word, StoragePhysicalStorageBuffer), {aligned}),
          instruction(OpUConvert, word, {address})};
}

/// Of a chain, or of a scalar in device memory.
uint32_t Emitter::pointer_to(const Place& at) {
  if (at.where == Place::Where::address) {
    uint32_t cell = 0;
    const uint64_t size = at.type->size();
    if (at.type->is_integer() && size < 4) {
      const bool is_byte = size == 1;
      assembler_.capability(is_byte ? CapabilityStorageBuffer8BitAccess : CapabilityStorageBuffer16BitAccess);
      if (is_byte && facts_.version < 0x00010500) assembler_.extension("SPV_KHR_8bit_storage");
      cell = assembler_.type(OpTypeInt, {static_cast<uint32_t>(8 * size), 0});
    } else {
      cell = register_type(*at.type);
    }
    const uint32_t address = at.distance ? sum(at.root, int_constant(64, at.distance), 64) : at.root;
    return instruction(OpConvertUToPtr, pointer_type(cell, StoragePhysicalStorageBuffer), {address});
  }
  if (at.indices.empty()) return at.root;
  Words operands = {at.root};
  operands.insert(operands.end(), at.indices.begin(), at.indices.end());
  return instruction(OpAccessChain, pointer_type(cell_type(*at.type, at.layout), at.storage), operands);
}

uint32_t Emitter::load_scalar(const Place& from) {
  if (from.where == Place::Where::words) return load_words(from);
  if (is_part_of_word(from)) {
    const auto [pointer, bytes] = word_of(from);
    const uint32_t word = instruction(OpLoad, int_type(32), {pointer, 2, 4});
    return fitted(instruction(OpShiftRightLogical, int_type(32), {word, bit_of(bytes)}), from.type->kind);
  }
  const uint32_t pointer = pointer_to(from);
  if (from.where != Place::Where::address) {
    const uint32_t cell = cell_type(*from.type, from.layout);
    return from_cell(instruction(OpLoad, cell, {pointer}), *from.type, cell);
  }
  const auto size = static_cast<uint32_t>(from.type->size());
  const bool is_narrow = from.type->is_integer() && size < 4;
  const uint32_t cell = is_narrow ? assembler_.type(OpTypeInt, {8 * size, 0}) : register_type(*from.type);
  return from_cell(instruction(OpLoad, cell, {pointer, 2, size}), *from.type, cell);
}

void Emitter::store_scalar(const Place& to, uint32_t value) {
  if (to.where == Place::Where::words) return store_words(to, value);
  if (is_part_of_word(to)) {
    const auto [pointer, bytes] = word_of(to);
    return store_part(pointer, ScopeDevice, bytes, to.type->size(), value);
  }
  const uint32_t pointer = pointer_to(to);
  if (to.where != Place::Where::address) {
    put(frame_.body, OpStore, {pointer, to_cell(value, *to.type, cell_type(*to.type, to.layout))});
    return;
  }
  const auto size = static_cast<uint32_t>(to.type->size());
  const bool is_narrow = to.type->is_integer() && size < 4;
  const uint32_t cell = is_narrow ? assembler_.type(OpTypeInt, {8 * size, 0}) : register_type(*to.type);
  put(frame_.body, OpStore, {pointer, to_cell(value, *to.type, cell), 2, size});
}

/// Whether the place holds a type as registers do.
static bool is_plain_chain(const Place& at) { return at.where == Place::Where::chain; }

uint32_t Emitter::load(const Place& from) {
  if (from.type->is_scalar()) return load_scalar(from);
  const uint32_t type = cell_type(*from.type, Layout::plain);
  if (is_plain_chain(from) && has_register_cells(*from.type, from.layout)) return instruction(OpLoad, type, {pointer_to(from)});
  Words members;
  const bool is_array = from.type->kind == Kind::array;
  const size_t count = is_array ? from.type->count : from.type->record->members.size();
  for (uint32_t i = 0; i < count; ++i) {
    const Place member = is_array ? element_of(from, u32(i), *types_[static_cast<size_t>(Kind::i32)]) : member_of(from, i);
    const uint32_t one = load(member);
    members.push_back(member.type->is_scalar() ? to_cell(one, *member.type, cell_type(*member.type, Layout::plain)) : one);
  }
  return instruction(OpCompositeConstruct, type, members);
}

void Emitter::store(const Place& to, uint32_t value) {
  if (to.type->is_scalar()) return store_scalar(to, value);
  if (is_plain_chain(to) && has_register_cells(*to.type, to.layout)) {
    put(frame_.body, OpStore, {pointer_to(to), value});
    return;
  }
  const bool is_array = to.type->kind == Kind::array;
  const size_t count = is_array ? to.type->count : to.type->record->members.size();
  for (uint32_t i = 0; i < count; ++i) {
    const Place member = is_array ? element_of(to, u32(i), *types_[static_cast<size_t>(Kind::i32)]) : member_of(to, i);
    const uint32_t cell = cell_type(*member.type, Layout::plain);
    const uint32_t one = instruction(OpCompositeExtract, cell, {value, i});
    store(member, member.type->is_scalar() ? from_cell(one, *member.type, cell) : one);
  }
}

// ---- local arrays that are read in several types: words of 32 bits

uint32_t Emitter::load_words(const Place& from) {
  const uint64_t size = from.type->size();
  const uint32_t word = int_type(32);
  const auto at = [&](uint32_t bytes) {
    const uint32_t index = instruction(OpShiftRightLogical, word, {bytes, u32(2)});
    return instruction(OpAccessChain, pointer_type(word, StorageWorkgroup), {from.root, index});
  };
  const uint32_t low = instruction(OpLoad, word, {at(from.bytes)});
  if (size == 4) return from.type->kind == Kind::f32 ? instruction(OpBitcast, float_type(32), {low}) : low;
  if (size == 8) {
    const uint32_t high = instruction(OpLoad, word, {at(sum(from.bytes, u32(4), 32))});
    const uint32_t wide = int_type(64);
    const uint32_t upper = instruction(OpShiftLeftLogical, wide, {instruction(OpUConvert, wide, {high}), int_constant(64, 32)});
    const uint32_t both = instruction(OpBitwiseOr, wide, {instruction(OpUConvert, wide, {low}), upper});
    return from.type->kind == Kind::f64 ? instruction(OpBitcast, register_type(*from.type), {both}) : both;
  }
  return fitted(instruction(OpShiftRightLogical, word, {low, bit_of(from.bytes)}), from.type->kind);
}

void Emitter::store_words(const Place& to, uint32_t value) {
  const uint64_t size = to.type->size();
  const uint32_t word = int_type(32);
  const auto at = [&](uint32_t bytes) {
    const uint32_t index = instruction(OpShiftRightLogical, word, {bytes, u32(2)});
    return instruction(OpAccessChain, pointer_type(word, StorageWorkgroup), {to.root, index});
  };
  if (size == 4) {
    put(frame_.body, OpStore, {at(to.bytes), to.type->kind == Kind::f32 ? instruction(OpBitcast, word, {value}) : value});
  } else if (size == 8) {
    const uint32_t wide = int_type(64);
    const uint32_t bits = to.type->kind == Kind::f64 ? instruction(OpBitcast, wide, {value}) : value;
    put(frame_.body, OpStore, {at(to.bytes), instruction(OpUConvert, word, {bits})});
    const uint32_t upper = instruction(OpShiftRightLogical, wide, {bits, int_constant(64, 32)});
    put(frame_.body, OpStore, {at(sum(to.bytes, u32(4), 32)), instruction(OpUConvert, word, {upper})});
  } else {
    store_part(at(to.bytes), ScopeWorkgroup, to.bytes, size, value);
  }
}

}  // namespace backplane::driver::spirv
