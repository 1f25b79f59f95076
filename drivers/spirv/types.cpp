// drivers/spirv/types.cpp: types of registers and of memory, and constants.
#include <bit>
#include <cmath>

#include "emitter.h"

namespace backplane::driver::spirv {

uint32_t Emitter::int_type(uint32_t width) {
  if (width == 64) assembler_.capability(CapabilityInt64);
  return assembler_.type(OpTypeInt, {width, 0});
}

uint32_t Emitter::float_type(uint32_t width) {
  if (width == 64) assembler_.capability(CapabilityFloat64);
  if (width == 16) assembler_.capability(CapabilityFloat16);
  return assembler_.type(OpTypeFloat, {width});
}

uint32_t Emitter::register_type(const Type& type) {
  switch (type.kind) {
    case Kind::none:
      return void_type();
    case Kind::boolean:
      return bool_type();
    case Kind::f32:
      return float_type(32);
    case Kind::f64:
      if (!facts_.float64) fail(0, "f64: the device has no float64 (the fact float64)");
      return float_type(64);
    case Kind::pointer:
      if (is_vulkan()) return int_type(type.space == Space::global ? 64 : 32);
      return pointer_type(cell_type(*type.element, Layout::plain), type.space == Space::global ? StorageCrossWorkgroup : StorageWorkgroup);
    case Kind::array:
    case Kind::structure:
      return cell_type(type, Layout::plain);
    default:
      return int_type(width_of(type));
  }
}

uint32_t Emitter::scalar_cell(const Type& type, bool is_narrow_8, bool is_narrow_16) {
  const uint64_t size = type.is_integer() ? type.size() : 4;
  if (size == 1 && is_narrow_8) {
    assembler_.capability(CapabilityInt8);
    return assembler_.type(OpTypeInt, {8, 0});
  }
  if (size == 2 && is_narrow_16) {
    assembler_.capability(CapabilityInt16);
    return assembler_.type(OpTypeInt, {16, 0});
  }
  return register_type(type);
}

uint32_t Emitter::cell_type(const Type& type, Layout layout) {
  if (type.kind == Kind::array) {
    const uint32_t element = cell_type(*type.element, layout);
    if (layout != Layout::block) return assembler_.type(OpTypeArray, {element, u32(type.count)});
    uint32_t& known = blocks_[{&type, element}];
    if (!known) {
      known = assembler_.new_type(OpTypeArray, {element, u32(type.count)});
      put(assembler_.annotations, OpDecorate, {known, DecorationArrayStride, static_cast<uint32_t>(type.element->size())});
    }
    return known;
  }
  if (type.kind == Kind::structure) {
    uint32_t& known = records_[{type.record, layout}];
    if (known) return known;
    Words members;
    for (const Member& member : type.record->members) members.push_back(cell_type(*member.type, layout));
    if (layout != Layout::block) return records_[{type.record, layout}] = assembler_.type(OpTypeStruct, members);
    const uint32_t out = assembler_.new_type(OpTypeStruct, members);
    for (uint32_t i = 0; i < members.size(); ++i) {
      put(assembler_.annotations, OpMemberDecorate, {out, i, DecorationOffset, static_cast<uint32_t>(type.record->members[i].offset)});
    }
    return records_[{type.record, layout}] = out;
  }
  if (!is_vulkan()) return scalar_cell(type, true, true);
  if (layout == Layout::block && type.size() < 4) fail(0, "a " + name_of(type) + " in the values of a kernel");
  return layout == Layout::local ? scalar_cell(type, facts_.int8, facts_.int16) : register_type(type);
}

uint64_t Emitter::cell_bytes(const Type& type, Layout layout) const {
  if (type.kind == Kind::array) return type.count * cell_bytes(*type.element, layout);
  if (type.kind == Kind::structure) {
    uint64_t out = 0;
    for (const Member& member : type.record->members) out += cell_bytes(*member.type, layout);
    return out > type.size() ? out : type.size();
  }
  const bool is_narrow = !is_vulkan() || (layout == Layout::local && (type.size() == 1 ? facts_.int8 : facts_.int16));
  return type.size() < 4 && !is_narrow ? 4 : type.size();
}

uint32_t Emitter::int_constant(uint32_t width, uint64_t bits) {
  const uint32_t type = int_type(width);
  const auto low = static_cast<uint32_t>(bits);
  const uint32_t out = width == 64 ? assembler_.constant(OpConstant, {type, low, static_cast<uint32_t>(bits >> 32)})
                                   : assembler_.constant(OpConstant, {type, low});
  known_.emplace(out, width == 64 ? static_cast<int64_t>(bits) : static_cast<int32_t>(low));
  return out;
}

uint32_t Emitter::real_constant(const Type& type, double value) {
  if (type.kind == Kind::f32)
    return assembler_.constant(OpConstant, {register_type(type), std::bit_cast<uint32_t>(static_cast<float>(value))});
  const auto bits = std::bit_cast<uint64_t>(value);
  return assembler_.constant(OpConstant, {register_type(type), static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)});
}

/// Within a function.
uint32_t Emitter::constant(const Type& type, uint64_t bits, double value) {
  if (type.kind == Kind::boolean) return assembler_.constant(bits ? OpConstantTrue : OpConstantFalse, {bool_type()});
  if (type.is_integer()) return int_constant(width_of(type), bits);
  if (facts_.hide_zero && is_vulkan() && value == 0 && !std::signbit(value)) {
    const uint32_t zero = hidden_zero();
    if (type.kind == Kind::f32) return instruction(OpBitcast, register_type(type), {zero});
    return instruction(OpBitcast, register_type(type), {instruction(OpUConvert, int_type(64), {zero})});
  }
  return real_constant(type, value);
}

/// Of the unit's tables.
uint32_t Emitter::constant_cell(const Expression& e, const Type& type) {
  const uint32_t cell = cell_type(type, Layout::plain);
  if (e.op == Operator::list) {
    Words all = {cell};
    const bool is_array = type.kind == Kind::array;
    const size_t count = is_array ? type.count : type.record->members.size();
    for (size_t i = 0; i < count; ++i) {
      const Type& member = is_array ? *type.element : *type.record->members[i].type;
      all.push_back(i < e.arguments.size() ? constant_cell(*e.arguments[i], member) : null(cell_type(member, Layout::plain)));
    }
    return assembler_.constant(OpConstantComposite, all);
  }
  if (e.op != Operator::constant) fail(e.line, "a table's element that is not a constant");
  if (type.is_real()) return real_constant(type, e.real);
  if (type.size() < 4 && !is_vulkan()) {
    const auto bits = static_cast<uint32_t>(type.is_signed() ? e.integer : e.integer & (type.size() == 1 ? 0xff : 0xffff));
    return assembler_.constant(OpConstant, {cell, bits});
  }
  return int_constant(width_of(type), e.integer);
}

}  // namespace backplane::driver::spirv
