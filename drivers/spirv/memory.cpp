// drivers/spirv/memory.cpp: places, pointers, loads and stores.
#include "emitter.h"

namespace backplane::driver::spirv {

// ---- arithmetic of indices, with constants folded

uint32_t Emitter::sum(uint32_t a, uint32_t b, uint32_t width) {
  const auto x = known_.find(a), y = known_.find(b);
  if (x != known_.end() && y != known_.end())
    return int_constant(width, static_cast<uint64_t>(x->second) + static_cast<uint64_t>(y->second));
  if (x != known_.end() && x->second == 0) return b;
  if (y != known_.end() && y->second == 0) return a;
  return instruction(OpIAdd, int_type(width), {a, b});
}

uint32_t Emitter::scaled(uint32_t index, uint64_t by, uint32_t width) {
  const auto known = known_.find(index);
  if (known != known_.end()) return int_constant(width, static_cast<uint64_t>(known->second) * by);
  if (by == 1) return index;
  if ((by & (by - 1)) != 0) return instruction(OpIMul, int_type(width), {index, int_constant(width, by)});
  uint32_t shift = 0;
  while (uint64_t{1} << shift != by) ++shift;
  return instruction(OpShiftLeftLogical, int_type(width), {index, int_constant(width, shift)});
}

uint32_t Emitter::index_of_width(uint32_t width, uint32_t index, const Type& type) {
  if (width_of(type) == width) return index;
  const auto known = known_.find(index);
  if (known != known_.end()) {
    const bool is_extended = type.is_signed() || width == 32;
    return int_constant(width, is_extended ? static_cast<uint64_t>(known->second) : static_cast<uint32_t>(known->second));
  }
  return instruction(width == 64 && type.is_signed() ? OpSConvert : OpUConvert, int_type(width), {index});
}

uint64_t Emitter::flat_count(const Type& type) { return type.kind == Kind::array ? type.count * flat_count(*type.element) : 1; }
const Type& Emitter::innermost(const Type& type) { return type.kind == Kind::array ? innermost(*type.element) : type; }

// ---- places

/// vulkan: `flat` innermost elements behind the beginning of a local array.
Place Emitter::local_place(const Variable* local, uint32_t flat, const Type& type) {
  Place out;
  out.type = &type;
  out.layout = Layout::local;
  out.storage = StorageWorkgroup;
  out.root = local_variable(local);
  out.local = local;
  out.flat = flat;
  if (is_retyped(local)) {
    out.where = Place::Where::words;
    out.bytes = scaled(flat, innermost(type).size(), 32);
  } else if (type.kind != Kind::array) {
    out.indices = {flat};
  }
  return out;
}

Place Emitter::place(const Expression& e) {
  if (e.op == Operator::variable) {
    const Variable* variable = e.variable;
    if (variable->role == Variable::Role::local_array && is_vulkan()) return local_place(variable, u32(0), *e.type);
    const auto slot = frame_.slots.find(variable);
    if (slot != frame_.slots.end() && slot->second.kind == Slot::Kind::place) return slot->second.place;
    Place out;
    out.type = e.type;
    if (variable->role == Variable::Role::local_array) {
      out.storage = StorageWorkgroup;
      out.root = local_variable(variable);
      return out;
    }
    if (variable->role == Variable::Role::table) {
      out.storage = is_vulkan() ? StoragePrivate : StorageUniformConstant;
      uint32_t& known = tables_[variable];
      if (!known) {
        const uint32_t type = cell_type(*e.type, Layout::plain);
        known = assembler_.variable(pointer_type(type, out.storage), out.storage, constant_cell(*variable->value, *e.type));
      }
      out.root = known;
      return out;
    }
    // A value that is indexed: stored once.
    if (slot == frame_.slots.end()) fail(e.line, "'" + std::string(variable->name) + "' is not in scope");
    out.root = private_variable(cell_type(*e.type, Layout::plain));
    store(out, slot->second.value.id);
    return out;
  }
  if (e.op == Operator::member) return member_of(place(*e.a), e.member);
  if (e.op == Operator::element && e.a->type->is_pointer()) {
    const Value pointer = value(*e.a);
    return pointee(pointer, *e.a->type, value(*e.b).id, *e.b->type);
  }
  if (e.op == Operator::element) {
    const Place array = place(*e.a);
    return element_of(array, value(*e.b).id, *e.b->type);
  }
  // The place of a value: a call's result whose member is an array.
  Place out;
  out.type = e.type;
  out.root = private_variable(cell_type(*e.type, Layout::plain));
  store(out, value(e).id);
  return out;
}

Place Emitter::element_of(const Place& array, uint32_t index, const Type& index_type) {
  const Type& type = *array.type->element;
  if (array.local && array.indices.empty()) {
    const uint32_t by = scaled(index_of_width(32, index, index_type), flat_count(type), 32);
    return local_place(array.local, sum(array.flat, by, 32), type);
  }
  Place out = array;
  out.type = &type;
  if (array.where == Place::Where::address) {
    const uint32_t by = scaled(index_of_width(64, index, index_type), type.size(), 64);
    const auto known = known_.find(by);
    if (known != known_.end()) {
      out.distance += static_cast<uint64_t>(known->second);
    } else {
      out.root = sum(array.root, by, 64);
    }
  } else if (array.where == Place::Where::words) {
    out.bytes = sum(array.bytes, scaled(index_of_width(32, index, index_type), type.size(), 32), 32);
  } else {
    out.indices.push_back(index);
  }
  return out;
}

Place Emitter::member_of(const Place& structure, uint32_t member) {
  Place out = structure;
  const Member& one = structure.type->record->members[member];
  out.type = one.type;
  if (structure.where == Place::Where::address) {
    out.distance += one.offset;
  } else if (structure.where == Place::Where::words) {
    out.bytes = sum(structure.bytes, u32(one.offset), 32);
    out.local = nullptr;  // no element of the array
  } else {
    out.indices.push_back(u32(member));
  }
  return out;
}

Place Emitter::pointee(const Value& pointer, const Type& type, uint32_t index, const Type& index_type) {
  if (pointer.base) return local_place(pointer.base, sum(pointer.id, index_of_width(32, index, index_type), 32), *type.element);
  Place out;
  out.type = type.element;
  if (is_vulkan()) {
    out.where = Place::Where::address;
    out.root = pointer.id;
    const uint32_t by = scaled(index_of_width(64, index, index_type), type.element->size(), 64);
    const auto known = known_.find(by);
    if (known != known_.end()) {
      out.distance = static_cast<uint64_t>(known->second);
    } else {
      out.root = sum(pointer.id, by, 64);
    }
    return out;
  }
  out.storage = type.space == Space::global ? StorageCrossWorkgroup : StorageWorkgroup;
  out.root = move(pointer, type, index, index_type).id;
  return out;
}

Value Emitter::move(const Value& pointer, const Type& type, uint32_t index, const Type& index_type) {
  if (pointer.base) return {sum(pointer.id, index_of_width(32, index, index_type), 32), pointer.base};
  const uint32_t wide = index_of_width(64, index, index_type);
  if (is_vulkan()) return {sum(pointer.id, scaled(wide, type.element->size(), 64), 64)};
  const auto known = known_.find(wide);
  if (known != known_.end() && known->second == 0) return pointer;
  return {instruction(OpInBoundsPtrAccessChain, register_type(type), {pointer.id, wide})};
}

Value Emitter::address_of(const Place& at, uint32_t line) {
  if (at.where == Place::Where::address) return {sum(at.root, int_constant(64, at.distance), 64)};
  if (is_vulkan()) {
    if (!at.local || at.indices.size() > 1) fail(line, "the address of a member of a local array's element");
    return {at.flat, at.local};
  }
  Place first = at;
  if (at.type->kind == Kind::array) {
    first.indices.push_back(u32(0));
    first.type = at.type->element;
  }
  return {pointer_to(first)};
}

uint32_t Emitter::local_variable(const Variable* local) {
  uint32_t& known = locals_[local];
  if (known) return known;
  const Type& type = *local->type;
  uint32_t cell = 0;
  uint64_t bytes = 0;
  if (!is_vulkan()) {
    cell = cell_type(type, Layout::local);
    bytes = type.size();
  } else if (is_retyped(local)) {
    const uint64_t count = (type.size() + 3) / 4;
    cell = assembler_.type(OpTypeArray, {int_type(32), u32(count)});
    bytes = 4 * count;
  } else {
    cell = assembler_.type(OpTypeArray, {cell_type(innermost(type), Layout::local), u32(flat_count(type))});
    bytes = cell_bytes(type, Layout::local);
  }
  known = assembler_.variable(pointer_type(cell, StorageWorkgroup), StorageWorkgroup);
  if (facts_.version >= 0x00010400) interface_.push_back(known);
  local_bytes_ += (bytes + 7) / 8 * 8;
  // PoCL makes local what is named so, and of any other name one array of all launches.
  if (!is_vulkan()) assembler_.name(known, module_.entries.back().name + "." + std::string(local->name));
  return known;
}

/// Which local arrays are read in more than one type.
void Emitter::find_words() {
  if (!is_vulkan()) return;
  for (const Expression& e : unit_.expressions) {
    if (e.op != Operator::convert || !e.type->is_pointer() || e.type->space != Space::local || e.a->type->element == e.type->element)
      continue;
    const Expression* root = e.a;
    while (root->op == Operator::move || root->op == Operator::element || root->op == Operator::decay || root->op == Operator::convert ||
           root->op == Operator::address) {
      root = root->a;
    }
    if (root->op == Operator::variable && root->variable->role == Variable::Role::local_array) {
      retyped_.insert(root->variable);
    } else {
      all_retyped_ = true;
    }
  }
}

}  // namespace backplane::driver::spirv
