// drivers/spirv/declarations.cpp: types as they are written: specifiers, declarators, structs, enumerations.
#include "parser.h"

namespace backplane::driver::spirv {

Parser::Specifiers Parser::specifiers() {
  Specifiers out;
  for (; token_.kind == Token::Kind::name; advance()) {
    using enum Keyword;
    switch (token_.symbol->keyword) {
      case word_const:
        out.is_const = true;
        continue;
      case word_volatile:  // a compiler of kernels keeps all accesses to memory
      case word_restrict:
      case word_static:
      case word_inline:
        continue;
      case word_typedef:
        out.is_typedef = true;
        continue;
      case word_kernel:
        out.is_kernel = true;
        continue;
      case word_global:
      case word_local: {
        const Space space = at(word_global) ? Space::global : Space::local;
        if (out.space != Space::of_private && out.space != space) fail(token_.line, "BP_GLOBAL and BP_LOCAL of one type");
        out.space = space;
        continue;
      }
      default:
        break;
    }
    if (out.type || !begins_type()) break;
    out.type = word_type();
    if (!out.type) {
      const Binding& named = *token_.symbol->binding;
      out.type = named.type;
      out.is_const |= named.is_const;
    } else {
      has_ahead_ = true;  // word_type stands behind the type
      ahead_ = token_;
    }
  }
  if (!out.type) unexpected("a type");
  return out;
}

/// The type of C's words, or of a struct or enum; NULL of a typedef's name, which is left.
const Type* Parser::word_type() {
  using enum Keyword;
  const Keyword first = token_.symbol->keyword;
  if (first == none) return nullptr;
  const uint32_t line = token_.line;
  advance();
  if (first == word_struct) return record();
  if (first == word_enum) return enumeration();
  switch (first) {
    case type_void:
      return scalar(Kind::none);
    case type_i8:
      return scalar(Kind::i8);
    case type_u8:
      return scalar(Kind::u8);
    case type_i16:
      return scalar(Kind::i16);
    case type_u16:
      return scalar(Kind::u16);
    case type_i32:
      return scalar(Kind::i32);
    case type_u32:
      return scalar(Kind::u32);
    case type_i64:
      return scalar(Kind::i64);
    case type_u64:
      return scalar(Kind::u64);
    case type_f32:
      return scalar(Kind::f32);
    case type_f64:
      return scalar(Kind::f64);
    default:
      break;
  }
  bool is_unsigned = false, has_char = false, has_short = false, has_long = false;
  for (Keyword word = first;; word = token_.symbol->keyword, advance()) {
    is_unsigned |= word == word_unsigned;
    has_char |= word == word_char;
    has_short |= word == word_short;
    has_long |= word == word_long;
    if (token_.kind != Token::Kind::name || token_.symbol->keyword < word_int || token_.symbol->keyword > word_unsigned) break;
  }
  if (has_char + has_short + has_long > 1) fail(line, "a type of words that do not go together");
  const Kind kind = has_char ? Kind::i8 : has_short ? Kind::i16 : has_long ? Kind::i64 : Kind::i32;
  return scalar(is_unsigned ? static_cast<Kind>(static_cast<int>(kind) + 1) : kind);
}

/// Behind `struct`.
const Type* Parser::record() {
  const uint32_t line = token_.line;
  Symbol* tag = nullptr;
  if (token_.kind == Token::Kind::name) tag = &unit_.names->symbol("struct " + std::string(expect_name().name));
  if (!at("{")) {
    if (!tag) unexpected("a struct's name");
    if (!tag->binding) fail(line, std::string(tag->name) + " is not declared");
    return tag->binding->type;
  }
  Record& out = unit_.types.record();
  const Type* type = unit_.types.structure(&out);
  if (tag) {
    out.name = tag->name;
    bind(*tag, Binding::Kind::tag).type = type;
  }
  expect("{");
  while (!take("}")) {
    const Specifiers what = specifiers();
    do {
      const Declarator one = declarator(what);
      if (one.type->is_pointer()) fail(one.line, "a pointer in a struct");
      if (one.is_function || one.type->kind == Kind::none || one.type->size() == 0)
        fail(one.line, "a member of type " + name_of(*one.type));
      if (at(":")) fail(one.line, "a bit field");
      const uint64_t align = one.type->align();
      const uint64_t offset = (out.size + align - 1) / align * align;
      out.members.push_back({one.name->name, one.type, offset});
      out.size = offset + one.type->size();
      out.align = align > out.align ? align : out.align;
    } while (take(","));
    expect(";");
  }
  if (out.members.empty()) fail(line, "a struct without members");
  out.size = (out.size + out.align - 1) / out.align * out.align;
  out.is_complete = true;
  return type;
}

/// Behind `enum`: its names are constants of type i32.
const Type* Parser::enumeration() {
  if (token_.kind == Token::Kind::name) expect_name();
  if (take("{")) {
    int64_t next = 0;
    while (!at("}")) {
      Symbol& name = expect_name();
      if (take("=")) {
        const Expression* value = choice_expression();
        if (value->op != Operator::constant || !value->type->is_integer()) fail(token_.line, "the value of an enum's name is a constant");
        next = static_cast<int64_t>(value->integer);
      }
      bind(name, Binding::Kind::constant).number = next++;
      if (!take(",")) break;
    }
    expect("}");
  }
  return scalar(Kind::i32);
}

Parser::Declarator Parser::declarator(const Specifiers& specifiers, bool is_abstract) {
  Declarator out;
  out.type = specifiers.type;
  bool to_const = specifiers.is_const;
  Space space = specifiers.space;
  out.line = token_.line;
  while (take("*")) {
    if (space == Space::of_private) {
      fail(out.line, "a pointer without BP_GLOBAL or BP_LOCAL: to what is one item's alone there are no pointers");
    }
    if (out.type->kind == Kind::none) fail(out.line, "a pointer to void");
    out.type = unit_.types.pointer(out.type, space, to_const);
    to_const = false;
    space = Space::of_private;
    out.is_const = false;
    for (; token_.kind == Token::Kind::name; advance()) {
      if (at(Keyword::word_const)) {
        out.is_const = true;
      } else if (!at(Keyword::word_restrict) && !at(Keyword::word_volatile)) {
        break;
      }
    }
  }
  if (is_abstract) return out;
  if (at("(")) fail(out.line, "a pointer to a function or an array");
  out.line = token_.line;
  out.name = &expect_name();
  if (at("(")) {
    out.is_function = true;
    parameters(out);
  } else {
    out.type = array_suffix(out.type, false);
  }
  return out;
}

const Type* Parser::array_suffix(const Type* of, bool is_parameter) {
  if (!take("[")) return of;
  uint64_t count = 0;
  if (!at("]")) {
    count = constant_size("the size of an array");
    if (count == 0) fail(token_.line, "an array without elements");
  } else if (is_parameter) {
    fail(token_.line, "an array as a parameter: declare a pointer, BP_GLOBAL or BP_LOCAL");
  }
  expect("]");
  const Type* element = array_suffix(of, is_parameter);
  if (element->kind == Kind::array && element->count == 0) fail(token_.line, "an array of arrays without a size");
  if (element->is_pointer()) fail(token_.line, "an array of pointers");
  return unit_.types.array(element, count);
}

uint64_t Parser::constant_size(const char* what) {
  const uint32_t line = token_.line;
  const Expression* value = choice_expression();
  if (value->op != Operator::constant || value->type->is_real()) fail(line, std::string(what) + " is not a constant integer");
  if (static_cast<int64_t>(value->integer) < 0 || value->integer > UINT32_MAX) {
    fail(line, std::string(what) + " is " + std::to_string(static_cast<int64_t>(value->integer)));
  }
  return value->integer;
}

/// Behind the name of a function. The parameters are bound by its body alone.
void Parser::parameters(Declarator& out) {
  const size_t scope = open_scope();
  expect("(");
  if (at(Keyword::type_void) && peek().is(")")) advance();
  while (!at(")")) {
    const Specifiers what = specifiers();
    Declarator one = declarator(what, true);
    one.line = token_.line;
    one.name = &expect_name();
    if (at("[")) array_suffix(one.type, true), fail(one.line, "an array as a parameter: declare a pointer, BP_GLOBAL or BP_LOCAL");
    out.parameters.push_back(&variable(one, what, Variable::Role::parameter));
    if (!take(",")) break;
  }
  expect(")");
  close_scope(scope);
}

const Type* Parser::type_name() {
  const Declarator out = declarator(specifiers(), true);
  return array_suffix(out.type, false);
}

}  // namespace backplane::driver::spirv
