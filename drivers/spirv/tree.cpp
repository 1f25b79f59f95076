// drivers/spirv/tree.cpp: types: each once, their sizes as in C, their names.
#include "tree.h"

#include "tokens.h"

namespace backplane::driver::spirv {

uint64_t Type::size() const {
  switch (kind) {
    case Kind::i8:
    case Kind::u8:
      return 1;
    case Kind::i16:
    case Kind::u16:
      return 2;
    case Kind::boolean:
    case Kind::i32:
    case Kind::u32:
    case Kind::f32:
      return 4;
    case Kind::i64:
    case Kind::u64:
    case Kind::f64:
    case Kind::pointer:
      return 8;
    case Kind::array:
      return count * element->size();
    case Kind::structure:
      return record->size;
    default:
      return 0;
  }
}

uint64_t Type::align() const {
  if (kind == Kind::array) return element->align();
  return kind == Kind::structure ? record->align : size();
}

std::string name_of(const Type& type) {
  static const char* const scalars[] = {"void", "i32", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"};
  if (type.kind < Kind::pointer) return scalars[static_cast<size_t>(type.kind)];
  if (type.kind == Kind::array) return name_of(*type.element) + "[" + std::to_string(type.count) + "]";
  if (type.kind == Kind::structure) return type.record->name.empty() ? "a struct" : std::string(type.record->name);
  const char* const space = type.space == Space::global ? "BP_GLOBAL " : type.space == Space::local ? "BP_LOCAL " : "";
  return space + std::string(type.points_to_const ? "const " : "") + name_of(*type.element) + "*";
}

Types::Types() {
  for (size_t i = 0; i <= static_cast<size_t>(Kind::f64); ++i) {
    Type& type = types_.emplace_back();
    type.kind = static_cast<Kind>(i);
    scalars_[i] = &type;
  }
}

const Type* Types::find_or_add(const Type& type) {
  for (const Type& known : types_) {
    if (known.kind == type.kind && known.space == type.space && known.points_to_const == type.points_to_const &&
        known.element == type.element && known.count == type.count && known.record == type.record) {
      return &known;
    }
  }
  return &types_.emplace_back(type);
}

const Type* Types::pointer(const Type* to, Space space, bool to_const) {
  Type type;
  type.kind = Kind::pointer;
  type.element = to;
  type.space = space;
  type.points_to_const = to_const;
  return find_or_add(type);
}

const Type* Types::array(const Type* of, uint64_t count) {
  Type type;
  type.kind = Kind::array;
  type.element = of;
  type.count = count;
  return find_or_add(type);
}

const Type* Types::structure(const Record* record) {
  Type type;
  type.kind = Kind::structure;
  type.record = record;
  return find_or_add(type);
}

Unit::Unit() : names(std::make_unique<Names>()) {}
Unit::~Unit() = default;
Unit::Unit(Unit&&) noexcept = default;

}  // namespace backplane::driver::spirv
