// drivers/spirv/functions.cpp: functions, kernels with their parameters, and the module around them.
#include "emitter.h"

namespace backplane::driver::spirv {

Emitter::Emitter(const Unit& unit, const Facts& facts, const Options& options) : unit_(unit), facts_(facts), options_(options) {
  for (size_t i = 0; i <= static_cast<size_t>(Kind::f64); ++i) types_[i] = unit_.types.scalar(static_cast<Kind>(i));
  for (const Function& function : unit.functions) named_.emplace(function.name, &function);
}

Module Emitter::run() {
  if (facts_.version < (is_vulkan() ? 0x00010300 : 0x00010000)) fail(1, "Vulkan's SPIR-V is 1.3 or newer (the fact version)");
  if (unit_.group > facts_.max_group) {
    fail(1, "BP_GROUP is " + std::to_string(unit_.group) + ", and the device has groups of " + std::to_string(facts_.max_group) + " items");
  }
  find_words();
  for (const Function& function : unit_.functions) {
    if (function.is_kernel && function.body) kernel(function);
  }
  if (module_.entries.empty()) fail(1, "the text has no kernel");
  assembler_.capability(CapabilityInt64);
  if (is_vulkan()) {
    assembler_.capability(CapabilityShader);
    assembler_.capability(CapabilityPhysicalStorageBufferAddresses);
    if (facts_.version < 0x00010500) assembler_.extension("SPV_KHR_physical_storage_buffer");
    module_.words = assembler_.finish(facts_.version, 5348, 1);  // PhysicalStorageBuffer64, GLSL450
  } else {
    assembler_.capability(CapabilityKernel);
    assembler_.capability(CapabilityAddresses);
    module_.words = assembler_.finish(facts_.version, 2, 2);  // Physical64, OpenCL
  }
  return std::move(module_);
}

// ---- functions

Value Emitter::call(const Function& function, const Words& arguments, const std::vector<const Variable*>& bases, uint32_t line) {
  Words operands = {function_of(function, bases, line)};
  operands.insert(operands.end(), arguments.begin(), arguments.end());
  return {instruction(OpFunctionCall, register_type(*function.result), operands)};
}

uint32_t Emitter::function_of(const Function& function, const std::vector<const Variable*>& bases, uint32_t line) {
  if (!function.body) fail(line, "the function " + std::string(function.name) + " is declared and not defined");
  if (function.result->is_pointer() && function.result->space == Space::local && is_vulkan()) {
    fail(function.line, "a function that returns a pointer to local memory");
  }
  Called& called = called_[{&function, bases}];
  if (called.is_open) fail(line, "the function " + std::string(function.name) + " calls itself");
  if (called.id) return called.id;
  const uint32_t id = called.id = assembler_.id();
  called.is_open = true;
  Frame outer = std::move(frame_);
  frame_ = {};
  frame_.function = &function;
  Words types = {register_type(*function.result)}, declared, ids;
  for (const Variable* parameter : function.parameters) {
    types.push_back(register_type(*parameter->type));
    ids.push_back(assembler_.id());
    put(declared, OpFunctionParameter, {types.back(), ids.back()});
  }
  label(assembler_.id());
  size_t base = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Variable* parameter = function.parameters[i];
    const bool is_local = parameter->type->is_pointer() && parameter->type->space == Space::local;
    Slot slot;
    slot.value = {ids[i], is_local ? bases[base++] : nullptr};
    if (parameter->is_assigned) {
      slot.kind = Slot::Kind::place;
      slot.place.type = parameter->type;
      slot.place.root = private_variable(parameter->type->is_pointer() ? types[i + 1] : cell_type(*parameter->type, Layout::plain));
      store(slot.place, ids[i]);
    }
    frame_.slots[parameter] = slot;
  }
  statement(*function.body);
  finish_function(id, types[0], assembler_.type(OpTypeFunction, types), declared);
  frame_ = std::move(outer);
  called_[{&function, bases}].is_open = false;
  return id;
}

void Emitter::finish_function(uint32_t id, uint32_t result, uint32_t type, const Words& declared) {
  if (!frame_.is_closed) put(frame_.body, frame_.function->result->kind == Kind::none ? OpReturn : OpUnreachable, Words{});
  Words& out = assembler_.functions;
  put(out, OpFunction, {result, id, frame_.function->is_kernel ? 0u : 1u, type});  // 1: inline
  out.insert(out.end(), declared.begin(), declared.end());
  out.insert(out.end(), frame_.body.begin(), frame_.body.begin() + 2);  // the first label
  out.insert(out.end(), frame_.variables.begin(), frame_.variables.end());
  out.insert(out.end(), frame_.body.begin() + 2, frame_.body.end());
  put(out, OpFunctionEnd, Words{});
}

// ---- kernels

void Emitter::kernel(const Function& function) {
  Entry& entry = module_.entries.emplace_back();
  entry.name = function.name;
  entry.group = unit_.group;
  entry.pointers = static_cast<uint32_t>(function.parameters.size() - 1);
  for (const Variable* parameter : function.parameters) {
    const auto offset = static_cast<uint32_t>(8 * entry.parameters.size());
    const bool is_pointer = parameter->type->is_pointer();
    entry.parameters.push_back({is_pointer ? Parameter::Kind::pointer : Parameter::Kind::value,
                                is_pointer && !parameter->type->points_to_const, offset, static_cast<uint32_t>(parameter->type->size()),
                                std::string(parameter->name)});
  }
  entry.value_bytes = entry.parameters.back().size;
  frame_ = {};
  frame_.function = &function;
  called_.clear();
  locals_.clear();
  interface_.clear();
  local_bytes_ = 0;
  const uint32_t id = assembler_.id();
  Words types = {void_type()}, declared;
  label(assembler_.id());
  if (is_vulkan()) {
    entry.placement = place_parameters(function, entry);
  } else {
    entry.placement = Placement::arguments;
    entry.push_bytes = 0;
    entry.zero_offset = -1;
    kernel_parameters(function, types, declared);
  }
  statement(*function.body);
  finish_function(id, types[0], assembler_.type(OpTypeFunction, types), declared);
  entry.local_bytes = static_cast<uint32_t>(local_bytes_);
  if (facts_.local_bytes && local_bytes_ > facts_.local_bytes) {
    fail(function.line, "the local arrays of " + entry.name + " have " + std::to_string(local_bytes_) + " bytes, and the device " +
                            std::to_string(facts_.local_bytes));
  }
  Words operands = {is_vulkan() ? 5u : 6u, id};  // GLCompute, Kernel
  append(operands, entry.name);
  operands.insert(operands.end(), interface_.begin(), interface_.end());
  if (facts_.version >= 0x00010400) {
    for (const auto& [variable, table] : tables_) operands.push_back(table);
  }
  put(assembler_.entry_points, OpEntryPoint, operands);
  put(assembler_.modes, OpExecutionMode, {id, ModeLocalSize, unit_.group, 1, 1});
  if (!is_vulkan() && !options_.fast_math) put(assembler_.modes, OpExecutionMode, {id, ModeContractionOff});
  float_modes(id);
}

/// vulkan: the block of push constants, and what it holds of the parameters.
Placement Emitter::place_parameters(const Function& function, Entry& entry) {
  const uint32_t block_bytes = 8 * entry.pointers + entry.value_bytes;
  const uint32_t zero_bytes = facts_.hide_zero ? 4 : 0;
  const bool is_push = block_bytes + zero_bytes <= facts_.push_bytes;
  const uint32_t wide = int_type(64);
  const Type& value_type = *function.parameters.back()->type;
  Words members, offsets;
  const auto add = [&](uint32_t type, uint32_t offset) {
    members.push_back(type);
    offsets.push_back(offset);
  };
  if (is_push) {
    for (uint32_t i = 0; i < entry.pointers; ++i) add(wide, 8 * i);
    add(cell_type(value_type, Layout::block), 8 * entry.pointers);
  } else {
    add(wide, 0);
  }
  const uint32_t used = is_push ? block_bytes : 8;
  entry.zero_offset = facts_.hide_zero ? static_cast<int32_t>(used) : -1;
  entry.push_bytes = used + zero_bytes;
  zero_member_ = static_cast<uint32_t>(members.size());
  if (facts_.hide_zero) add(int_type(32), used);
  const uint32_t block = assembler_.new_type(OpTypeStruct, members);
  put(assembler_.annotations, OpDecorate, {block, DecorationBlock});
  for (uint32_t i = 0; i < offsets.size(); ++i) put(assembler_.annotations, OpMemberDecorate, {block, i, DecorationOffset, offsets[i]});
  push_ = assembler_.variable(pointer_type(block, StoragePushConstant), StoragePushConstant);
  if (facts_.version >= 0x00010400) interface_.push_back(push_);

  const auto pushed = [&](uint32_t member) {
    return instruction(OpLoad, wide, {instruction(OpAccessChain, pointer_type(wide, StoragePushConstant), {push_, u32(member)})});
  };
  const uint32_t address = is_push ? 0 : pushed(0);
  for (uint32_t i = 0; i < entry.pointers; ++i) {
    const Variable* parameter = function.parameters[i];
    Slot slot;
    if (is_push) {
      slot.value.id = pushed(i);
    } else {
      Place at;
      at.where = Place::Where::address;
      at.type = types_[static_cast<size_t>(Kind::u64)];
      at.root = address;
      at.distance = 8 * i;
      slot.value.id = load(at);
    }
    if (parameter->is_assigned) {
      slot.kind = Slot::Kind::place;
      slot.place.type = parameter->type;
      slot.place.root = private_variable(wide);
      store(slot.place, slot.value.id);
    }
    frame_.slots[parameter] = slot;
  }
  Slot& value = frame_.slots[function.parameters.back()];
  value.kind = Slot::Kind::place;
  value.place.type = &value_type;
  if (is_push) {
    value.place.layout = Layout::block;
    value.place.storage = StoragePushConstant;
    value.place.root = push_;
    value.place.indices = {u32(entry.pointers)};
  } else {
    value.place.where = Place::Where::address;
    value.place.root = address;
    value.place.distance = 8 * entry.pointers;
  }
  return is_push ? Placement::push : Placement::address;
}

/// kernel: arguments; the struct by value is a pointer to a copy.
void Emitter::kernel_parameters(const Function& function, Words& types, Words& declared) {
  for (const Variable* parameter : function.parameters) {
    const Type& type = *parameter->type;
    const bool is_pointer = type.is_pointer();
    const uint32_t id = assembler_.id();
    types.push_back(is_pointer ? register_type(type) : pointer_type(cell_type(type, Layout::plain), StorageFunction));
    put(declared, OpFunctionParameter, {types.back(), id});
    put(assembler_.annotations, OpDecorate, {id, DecorationFuncParamAttr, is_pointer ? AttributeNoAlias : AttributeByVal});
    Slot& slot = frame_.slots[parameter];
    slot.value.id = id;
    if (is_pointer && !parameter->is_assigned) continue;
    slot.kind = Slot::Kind::place;
    slot.place.type = &type;
    slot.place.root = is_pointer ? private_variable(types.back()) : id;
    if (is_pointer) store(slot.place, id);
  }
}

/// vulkan, with hide_zero: 0 as an integer of 32 bits that the device's compiler does not know.
uint32_t Emitter::hidden_zero() {
  const uint32_t type = int_type(32);
  return instruction(OpLoad, type, {instruction(OpAccessChain, pointer_type(type, StoragePushConstant), {push_, u32(zero_member_)})});
}

void Emitter::float_modes(uint32_t id) {
  bool has_one = false;
  const auto set = [&](bool is_so, ExecutionMode mode, Capability capability, uint32_t width) {
    if (!is_so) return;
    assembler_.capability(capability);
    put(assembler_.modes, OpExecutionMode, {id, mode, width});
    has_one = true;
  };
  for (const uint32_t width : {32u, 64u, 16u}) {
    const bool is_wanted = width == 32 || (width == 64 ? facts_.float64 && facts_.float64_controls : facts_.float16 && is_vulkan());
    const bool is_half = width == 16;  // what float16 promises
    set(is_wanted && (is_half || facts_.denorm_preserve), ModeDenormPreserve, CapabilityDenormPreserve, width);
    set(is_wanted && (is_half || facts_.signed_zero_inf_nan), ModeSignedZeroInfNanPreserve, CapabilitySignedZeroInfNanPreserve, width);
    set(is_wanted && (is_half || facts_.round_to_nearest), ModeRoundingModeRTE, CapabilityRoundingModeRTE, width);
  }
  if (has_one && facts_.version < 0x00010400) assembler_.extension("SPV_KHR_float_controls");
}

Module emit(const Unit& unit, const Facts& facts, const Options& options) { return Emitter(unit, facts, options).run(); }

}  // namespace backplane::driver::spirv
