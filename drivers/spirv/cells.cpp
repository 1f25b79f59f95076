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

/// Of a chain, or of a scalar in device memory.
uint32_t Emitter::pointer_to(const Place& at) {
  if (at.where == Place::Where::address) {
    uint32_t cell = 0;
    const uint64_t size = at.type->size();
    if (at.type->is_integer() && size < 4) {
      const bool is_byte = size == 1;
      if (!(is_byte ? facts_.memory_8 : facts_.memory_16)) {
        fail(0, std::string("a ") + name_of(*at.type) + " in device memory: the device loads none (the fact memory_" +
                    (is_byte ? "8)" : "16)"));
      }
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
  const uint32_t shift = instruction(OpShiftLeftLogical, word, {instruction(OpBitwiseAnd, word, {from.bytes, u32(3)}), u32(3)});
  return fitted(instruction(OpShiftRightLogical, word, {low, shift}), from.type->kind);
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
    // Other items may write the other bytes of the word meanwhile: each changes its own bits.
    const uint32_t shift = instruction(OpShiftLeftLogical, word, {instruction(OpBitwiseAnd, word, {to.bytes, u32(3)}), u32(3)});
    const uint32_t bits = u32(size == 1 ? 0xff : 0xffff);
    const uint32_t mask = instruction(OpNot, word, {instruction(OpShiftLeftLogical, word, {bits, shift})});
    const uint32_t moved = instruction(OpShiftLeftLogical, word, {instruction(OpBitwiseAnd, word, {value, bits}), shift});
    const uint32_t pointer = at(to.bytes);
    instruction(OpAtomicAnd, word, {pointer, u32(ScopeWorkgroup), u32(SemanticsRelaxed), mask});
    instruction(OpAtomicOr, word, {pointer, u32(ScopeWorkgroup), u32(SemanticsRelaxed), moved});
  }
}

}  // namespace backplane::driver::spirv
