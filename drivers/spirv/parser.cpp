// drivers/spirv/parser.cpp: tokens, scopes, functions and what else stands outside of them.
#include "parser.h"

#include <algorithm>

namespace backplane::driver::spirv {

Parser::Parser(Unit& unit, Preprocessor& preprocessor) : Builder(unit, preprocessor.file()), preprocessor_(preprocessor) { advance(); }

// ---- tokens

void Parser::advance() {
  if (has_ahead_) {
    token_ = ahead_;
    has_ahead_ = false;
  } else {
    token_ = preprocessor_.next();
  }
}

const Token& Parser::peek() {
  if (!has_ahead_) ahead_ = preprocessor_.next();
  has_ahead_ = true;
  return ahead_;
}

void Parser::unexpected(const char* wanted) {
  if (token_.kind == Token::Kind::end) fail(token_.line, std::string("the text ends where ") + wanted + " belongs");
  if (at(Keyword::word_goto)) fail(token_.line, "goto: the dialect has none; use loops, break and continue");
  if (at(Keyword::word_union)) fail(token_.line, "union: the dialect has none; bp_as_u32 and its like read the same bits");
  if (at(Keyword::word_other)) fail(token_.line, "'" + std::string(token_.text) + "': not a word of the dialect");
  fail(token_.line, "'" + std::string(token_.text) + "' where " + wanted + " belongs");
}

bool Parser::take(const char* code) {
  if (!at(code)) return false;
  advance();
  return true;
}
bool Parser::take(Keyword keyword) {
  if (!at(keyword)) return false;
  advance();
  return true;
}
void Parser::expect(const char* code) {
  if (!take(code)) unexpected((std::string("'") + code + "'").c_str());
}

Symbol& Parser::expect_name() {
  if (token_.kind != Token::Kind::name || token_.symbol->keyword != Keyword::none) unexpected("a name");
  Symbol& out = *token_.symbol;
  advance();
  return out;
}

// ---- scopes

Binding& Parser::bind(Symbol& symbol, Binding::Kind kind) {
  Binding& out = bindings_.emplace_back(Binding{kind, &symbol, symbol.binding});
  symbol.binding = &out;
  scope_.push_back(&out);
  return out;
}

void Parser::close_scope(size_t begin) {
  for (; scope_.size() > begin; scope_.pop_back()) scope_.back()->symbol->binding = scope_.back()->outer;
}

bool Parser::begins_type() const {
  if (token_.kind != Token::Kind::name) return false;
  const Keyword keyword = token_.symbol->keyword;
  if (keyword == Keyword::none) return token_.symbol->binding && token_.symbol->binding->kind == Binding::Kind::type;
  return keyword < Keyword::word_unroll;
}

// ---- declarations outside of functions

void Parser::unit() {
  while (token_.kind != Token::Kind::end) external();
}

void Parser::external() {
  if (take(";")) return;
  if (!begins_type()) {
    if (token_.kind == Token::Kind::name && token_.symbol->keyword == Keyword::none) {
      fail(token_.line, "'" + std::string(token_.text) + "': a type that is not declared");
    }
    unexpected("a declaration");
  }
  const Specifiers what = specifiers();
  if (take(";")) return;  // a struct or an enum
  for (;;) {
    Declarator head = declarator(what);
    if (what.is_typedef) {
      if (head.is_function) fail(head.line, "a type of functions: the dialect has no function pointers");
      Binding& named = bind(*head.name, Binding::Kind::type);
      named.type = head.type;
      named.is_const = what.is_const && !head.type->is_pointer();
      if (head.type->kind == Kind::structure && head.type->record->name.empty()) {
        const_cast<Record*>(head.type->record)->name = head.name->name;
      }
    } else if (head.is_function) {
      return function(what, head);
    } else {
      if (what.space == Space::local && !head.type->is_pointer()) fail(head.line, "a local array outside of a kernel");
      if (!what.is_const || head.type->is_pointer()) fail(head.line, "a variable outside of a function: constants (static const) alone");
      Variable& table = variable(head, what, Variable::Role::table);
      expect("=");
      table.value = initializer(table.type);
      unit_.tables.push_back(&table);
    }
    if (take(";")) return;
    expect(",");
  }
}

void Parser::function(const Specifiers& specifiers, Declarator& head) {
  Binding* known = lookup(*head.name);
  Function* out = known && known->kind == Binding::Kind::function ? known->function : nullptr;
  if (out && (out->body || !at("{"))) {
    if (at("{")) fail(head.line, "the function " + std::string(out->name) + " is defined twice");
    return expect(";");
  }
  if (!out) {
    out = &unit_.functions.emplace_back();
    bind(*head.name, Binding::Kind::function).function = out;
  } else if (out->parameters.size() != head.parameters.size() || out->result != head.type) {
    fail(head.line, "the function " + std::string(out->name) + " is not as it was declared");
  }
  out->name = head.name->name;
  out->line = head.line;
  out->is_kernel = specifiers.is_kernel;
  out->result = head.type;
  out->parameters = std::move(head.parameters);
  if (take(";")) return;
  if (!at("{")) unexpected("the body of a function");
  if (out->is_kernel) check_kernel(*out);
  current_ = out;
  const size_t scope = open_scope();
  for (Variable* parameter : out->parameters) bind(unit_.names->symbol(parameter->name), Binding::Kind::variable).variable = parameter;
  out->body = block();
  close_scope(scope);
  current_ = nullptr;
}

void Parser::check_kernel(const Function& kernel) {
  const std::string name(kernel.name);
  if (kernel.result->kind != Kind::none) fail(kernel.line, "the kernel " + name + " returns a value");
  const size_t count = kernel.parameters.size();
  if (count < 2) fail(kernel.line, "the kernel " + name + " takes pointers and a struct of values");
  for (size_t i = 0; i < count; ++i) {
    const Type& type = *kernel.parameters[i]->type;
    const bool is_last = i + 1 == count;
    if (is_last ? type.kind != Kind::structure : !type.is_pointer() || type.space != Space::global) {
      fail(kernel.line, "parameter " + std::to_string(i + 1) + " of the kernel " + name + " is a " + name_of(type) + ", not a " +
                            (is_last ? "struct of values" : "pointer to device memory"));
    }
  }
  kernel.parameters.back()->role = Variable::Role::value;
  kernel.parameters.back()->is_const = true;
  if (kernel.parameters.back()->type->size() % 8 != 0) {
    fail(kernel.line, "the values of the kernel " + name + " have " + std::to_string(kernel.parameters.back()->type->size()) +
                          " bytes, not a multiple of 8");
  }
}

Variable& Parser::variable(const Declarator& from, const Specifiers& specifiers, Variable::Role role) {
  Variable& out = unit_.variables.emplace_back();
  out.name = from.name->name;
  out.type = from.type;
  out.line = from.line;
  out.role = role;
  out.is_const = from.is_const || (specifiers.is_const && !from.type->is_pointer());
  if (out.type->kind == Kind::none) fail(from.line, "a variable of type void");
  if (out.type->is_pointer() && out.type->element->is_pointer()) fail(from.line, "a pointer to pointers");
  bind(*from.name, Binding::Kind::variable).variable = &out;
  return out;
}

/// Of a variable of this type, whose count it fills in.
Expression* Parser::initializer(const Type*& type) {
  const uint32_t line = token_.line;
  if (!take("{")) {
    if (type->kind == Kind::array) fail(line, "an array begins with a list of its elements, or with nothing");
    return converted(assignment(), type, "an initializer");
  }
  Expression* out = node(Operator::list, type, line);
  if (type->kind == Kind::none || type->is_scalar()) fail(line, "a list of values for a " + name_of(*type));
  const bool is_array = type->kind == Kind::array;
  const uint64_t limit = !is_array ? type->record->members.size() : type->count ? type->count : UINT32_MAX;
  while (!at("}")) {
    const size_t index = out->arguments.size();
    if (index == limit) fail(token_.line, "more values than the " + std::to_string(limit) + " of " + name_of(*type));
    const Type* of = is_array ? type->element : type->record->members[index].type;
    out->arguments.push_back(initializer(of));
    if (!take(",")) break;
  }
  expect("}");
  if (is_array && type->count == 0) type = unit_.types.array(type->element, out->arguments.size());
  if (is_array && type->count == 0) fail(line, "an array without elements");
  out->type = type;
  return out;
}

Unit parse(const std::string& source, const Facts& facts, const Options& options) {
  Unit unit;
  unit.name = options.name;
  Preprocessor preprocessor(source, *unit.names, options.name, defined_words(facts, options));
  Parser(unit, preprocessor).unit();
  const int64_t group = preprocessor.value_of("BP_GROUP", 1);
  if (group < 1 || group > 65536) throw Error(preprocessor.file(), 1, "BP_GROUP is " + std::to_string(group));
  unit.group = static_cast<uint32_t>(group);
  for (const Record& record : unit.types.records()) {
    if (record.is_complete) unit.records.push_back(&record);
  }
  return unit;
}

Module compile(const std::string& source, const Facts& facts, const Options& options) {
  return emit(parse(source, facts, options), facts, options);
}

}  // namespace backplane::driver::spirv
