// drivers/spirv/words.cpp: the words that the target supplies.
#include <algorithm>

#include "emitter.h"

namespace backplane::driver::spirv {

uint32_t Emitter::extended(uint32_t number, uint32_t type, const Words& operands) {
  Words all = {assembler_.import(is_vulkan() ? "GLSL.std.450" : "OpenCL.std"), number};
  all.insert(all.end(), operands.begin(), operands.end());
  return instruction(OpExtInst, type, all);
}

/// A component of a built-in vector, as an i32.
uint32_t Emitter::input(BuiltIn which, uint32_t component) {
  const bool is_scalar = which == BuiltInLocalInvocationIndex;
  const uint32_t width = is_vulkan() ? 32 : 64;
  const uint32_t type = is_scalar ? int_type(width) : assembler_.type(OpTypeVector, {int_type(width), 3});
  uint32_t& variable = inputs_[which];  // one of the module: two of the same built-in do not link on some runtimes
  if (!variable) {
    variable = assembler_.variable(pointer_type(type, StorageInput), StorageInput);
    put(assembler_.annotations, OpDecorate, {variable, DecorationBuiltIn, which});
  }
  if (std::find(interface_.begin(), interface_.end(), variable) == interface_.end()) interface_.push_back(variable);
  uint32_t out = instruction(OpLoad, type, {variable});
  if (!is_scalar) out = instruction(OpCompositeExtract, int_type(width), {out, component});
  return width == 64 ? instruction(OpUConvert, int_type(32), {out}) : out;
}

/// By a function of the prelude.
uint32_t Emitter::composed(const char* function, const Words& arguments, uint32_t line) {
  const auto found = named_.find(function);
  if (found == named_.end()) fail(line, std::string("the text is without ") + function + ": it has another prelude than this compiler's");
  return call(*found->second, arguments, {}, line).id;
}

uint32_t Emitter::atomic(const Expression& e) {
  const Value pointer = value(*e.arguments[0]);
  const Type& type = *e.arguments.back()->type;
  uint32_t at = pointer.id;
  const uint32_t wanted = register_type(type);
  if (is_vulkan()) {
    at = instruction(OpConvertUToPtr, pointer_type(wanted, StoragePhysicalStorageBuffer), {at});
  } else if (cell_type(*e.arguments[0]->type->element, Layout::plain) != wanted) {
    at = instruction(OpBitcast, pointer_type(wanted, StorageCrossWorkgroup), {at});
  }
  if (type.size() == 8) assembler_.capability(CapabilityInt64Atomics);
  const uint32_t scope = u32(ScopeDevice), relaxed = u32(SemanticsRelaxed);
  const uint32_t v = value(*e.arguments[1]).id;
  if (e.word->word == Word::atomic_swap) {
    return instruction(OpAtomicCompareExchange, wanted, {at, scope, relaxed, relaxed, value(*e.arguments[2]).id, v});
  }
  if (!type.is_real()) return instruction(OpAtomicIAdd, wanted, {at, scope, relaxed, v});
  assembler_.capability(CapabilityAtomicFloat32AddEXT);
  assembler_.extension("SPV_EXT_shader_atomic_float_add");
  return instruction(OpAtomicFAddEXT, wanted, {at, scope, relaxed, v});
}

Value Emitter::word(const Expression& e) {
  const Word word = e.word->word;
  const auto argument = [&](size_t i) { return value(*e.arguments[i]).id; };
  const ExtendedNumbers& numbers = is_vulkan() ? kGlsl : kOpenCl;
  const uint32_t type = register_type(*e.type);
  const bool is_f32 = e.type->kind == Kind::f32;
  switch (word) {
    case Word::item:
      return {input(is_vulkan() ? BuiltInLocalInvocationIndex : BuiltInLocalInvocationId, 0)};
    case Word::group_id:
      return {input(BuiltInWorkgroupId, static_cast<uint32_t>(e.arguments[0]->integer))};
    case Word::groups:
      return {input(BuiltInNumWorkgroups, static_cast<uint32_t>(e.arguments[0]->integer))};
    case Word::barrier:
      if (unit_.group > 1) {
        const uint32_t memory = is_vulkan() ? SemanticsUniformMemory : SemanticsCrossWorkgroupMemory;
        const uint32_t scope = u32(ScopeWorkgroup);
        put(frame_.body, OpControlBarrier, {scope, scope, u32(SemanticsAcquireRelease | SemanticsWorkgroupMemory | memory)});
      }
      return {};
    case Word::shuffle_xor: {
      if (facts_.version < 0x00010300) fail(e.line, "BP_SHUFFLE_XOR in SPIR-V below 1.3 (the facts version and subgroup_size)");
      assembler_.capability(CapabilityGroupNonUniform);
      assembler_.capability(CapabilityGroupNonUniformShuffle);
      const uint32_t x = argument(0);
      return {instruction(OpGroupNonUniformShuffleXor, type, {u32(ScopeSubgroup), x, argument(1)})};
    }
    case Word::bits:
      return {instruction(OpBitcast, type, {argument(0)})};
    case Word::square_root:
      if (is_f32 && !facts_.exact_sqrt && !options_.fast_math) return {composed("bp_root_", {argument(0)}, e.line)};
      return {extended(numbers.square_root, type, {argument(0)})};
    case Word::raw_square_root:
      return {extended(numbers.square_root, type, {argument(0)})};
    case Word::raw_divide: {
      const uint32_t a = argument(0);
      return {inexact(OpFDiv, type, {a, argument(1)})};
    }
    case Word::fused: {
      const uint32_t a = argument(0), b = argument(1), c = argument(2);
      if (!(is_f32 ? facts_.exact_fma : facts_.exact_fma64)) return {composed(is_f32 ? "bp_fma_" : "bp_fma64_", {a, b, c}, e.line)};
      return {extended(numbers.fused, type, {a, b, c})};
    }
    case Word::floor:
      return {extended(numbers.floor, type, {argument(0)})};
    case Word::ceiling:
      return {extended(numbers.ceiling, type, {argument(0)})};
    case Word::truncate:
      return {extended(numbers.truncate, type, {argument(0)})};
    case Word::round:
      return {extended(numbers.round, type, {argument(0)})};
    case Word::magnitude:
    case Word::copy_sign: {  // of bits: a NaN keeps its own
      const uint32_t width = is_f32 ? 32 : 64, number = int_type(width);
      const uint64_t sign = uint64_t{1} << (width - 1);
      const uint32_t a = instruction(OpBitcast, number, {argument(0)});
      uint32_t out = instruction(OpBitwiseAnd, number, {a, int_constant(width, ~sign)});
      if (word == Word::copy_sign) {
        const uint32_t b = instruction(OpBitcast, number, {argument(1)});
        out = instruction(OpBitwiseOr, number, {out, instruction(OpBitwiseAnd, number, {b, int_constant(width, sign)})});
      }
      return {instruction(OpBitcast, type, {out})};
    }
    case Word::highest_bit:
      if (is_vulkan()) return {extended(kGlslFindUMsb, type, {argument(0)})};
      return {instruction(OpISub, type, {u32(31), extended(kOpenClClz, type, {argument(0)})})};
    case Word::atomic_add:
    case Word::atomic_swap:
      return {atomic(e)};
    case Word::half_to_f32: {
      assembler_.capability(CapabilityInt16);
      const uint32_t bits = instruction(OpUConvert, assembler_.type(OpTypeInt, {16, 0}), {argument(0)});
      return {instruction(OpFConvert, type, {instruction(OpBitcast, float_type(16), {bits})})};
    }
    case Word::f32_to_half: {
      assembler_.capability(CapabilityInt16);
      const uint32_t half = instruction(OpFConvert, float_type(16), {argument(0)});
      if (!is_vulkan()) put(assembler_.annotations, OpDecorate, {half, DecorationFPRoundingMode, 0});
      return {instruction(OpUConvert, type, {instruction(OpBitcast, assembler_.type(OpTypeInt, {16, 0}), {half})})};
    }
  }
  fail(e.line, "a word without code");
}

}  // namespace backplane::driver::spirv
