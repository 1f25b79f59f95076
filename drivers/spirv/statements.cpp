// drivers/spirv/statements.cpp: the grammar of statements.
#include "parser.h"

namespace backplane::driver::spirv {

Statement& Parser::statement_node(Statement::Kind kind) {
  Statement& out = unit_.statements.emplace_back();
  out.kind = kind;
  out.line = token_.line;
  return out;
}

Statement* Parser::block() {
  Statement& out = statement_node(Statement::Kind::block);
  expect("{");
  ++depth_;
  const size_t scope = open_scope();
  while (!at("}")) {
    if (token_.kind == Token::Kind::end) fail(out.line, "a { without }");
    out.body.push_back(statement());
  }
  close_scope(scope);
  --depth_;
  advance();
  return &out;
}

/// Of an if or a loop: a block, or one statement with a scope.
Statement* Parser::body_of_loop() {
  const size_t scope = open_scope();
  ++depth_;
  Statement* out = statement();
  --depth_;
  close_scope(scope);
  return out;
}

Statement* Parser::statement() {
  using enum Keyword;
  if (++nesting_ > 1000) fail(token_.line, "statements of more than 1000 levels");
  struct Leave {
    size_t& count;
    ~Leave() { --count; }
  } leave{nesting_};
  if (at("{")) return block();
  if (begins_type()) return declaration();
  if (at(word_for) || at(word_while) || at(word_do) || at(word_unroll)) return loop();
  if (at(word_switch)) return choice();
  if (at(word_if)) {
    Statement& out = statement_node(Statement::Kind::branch);
    advance();
    expect("(");
    out.a = condition(expression());
    expect(")");
    out.first = body_of_loop();
    if (take(word_else)) out.second = body_of_loop();
    return &out;
  }
  if (at(word_break) || at(word_continue)) {
    const bool is_break = at(word_break);
    Statement& out = statement_node(is_break ? Statement::Kind::leave : Statement::Kind::next);
    if (loops_ + (is_break ? choices_ : 0) == 0) fail(out.line, std::string(token_.text) + " outside of a loop");
    advance();
    expect(";");
    return &out;
  }
  if (at(word_return)) {
    Statement& out = statement_node(Statement::Kind::give);
    advance();
    const bool has_result = current_->result->kind != Kind::none;
    if (at(";") == has_result) fail(out.line, has_result ? "a return without a value" : "a return with a value");
    if (has_result) out.a = converted(expression(), current_->result, "a result");
    expect(";");
    return &out;
  }
  if (at(word_case) || at(word_default)) fail(token_.line, std::string(token_.text) + " that is not directly within a switch");
  if (token_.kind == Token::Kind::name && token_.symbol->keyword == none && !token_.symbol->binding && peek().is(":")) {
    fail(token_.line, "the label " + std::string(token_.text) + ": the dialect has no goto");
  }
  if (at(";")) {
    Statement& out = statement_node(Statement::Kind::block);
    advance();
    return &out;
  }
  Statement& out = statement_node(Statement::Kind::expression);
  out.a = expression();
  expect(";");
  return &out;
}

/// With its ";".
Statement* Parser::declaration() {
  Statement& all = statement_node(Statement::Kind::block);
  all.is_group = true;
  const Specifiers what = specifiers();
  if (what.is_kernel) fail(all.line, "a kernel within a function");
  if (take(";")) return &all;
  for (;;) {
    const Declarator head = declarator(what);
    if (head.is_function) fail(head.line, "a function within a function");
    if (what.is_typedef) {
      bind(*head.name, Binding::Kind::type).type = head.type;
      if (head.type->kind == Kind::structure && head.type->record->name.empty())
        const_cast<Record*>(head.type->record)->name = head.name->name;
    } else {
      const bool is_local = what.space == Space::local && !head.type->is_pointer();
      if (is_local) {
        if (!current_->is_kernel || depth_ != 1) fail(head.line, "a local array that is not at the top of a kernel's body");
        if (head.type->kind != Kind::array || head.type->count == 0) fail(head.line, "a local array without a size");
      } else if (what.space == Space::global && !head.type->is_pointer()) {
        fail(head.line, "BP_GLOBAL of a variable");
      }
      Statement& one = statement_node(Statement::Kind::declare);
      one.line = head.line;
      one.variable = &variable(head, what, is_local ? Variable::Role::local_array : Variable::Role::automatic);
      if (take("=")) {
        if (is_local) fail(head.line, "a local array begins with nothing");
        one.a = initializer(one.variable->type);
      } else if (head.type->kind == Kind::array && head.type->count == 0) {
        fail(head.line, "an array without a size");
      } else if (head.type->is_pointer() && head.type->space == Space::local) {
        fail(head.line, "a pointer to local memory begins with a value");
      }
      all.body.push_back(&one);
    }
    if (take(";")) break;
    expect(",");
  }
  return all.body.size() == 1 ? all.body[0] : &all;
}

Statement* Parser::loop() {
  using enum Keyword;
  bool unroll = false;
  while (take(word_unroll)) unroll = true;
  const size_t scope = open_scope();
  if (at(word_for)) {
    Statement& out = statement_node(Statement::Kind::loop_for);
    out.unroll = unroll;
    advance();
    expect("(");
    ++depth_;
    if (begins_type()) {
      out.body.push_back(declaration());
    } else if (!take(";")) {
      Statement& first = statement_node(Statement::Kind::expression);
      first.a = expression();
      out.body.push_back(&first);
      expect(";");
    }
    if (!at(";")) out.a = condition(expression());
    expect(";");
    if (!at(")")) out.b = expression();
    expect(")");
    ++loops_;
    out.first = body_of_loop();
    --loops_;
    --depth_;
    close_scope(scope);
    return &out;
  }
  if (at(word_while)) {
    Statement& out = statement_node(Statement::Kind::loop_while);
    out.unroll = unroll;
    advance();
    expect("(");
    out.a = condition(expression());
    expect(")");
    ++loops_;
    out.first = body_of_loop();
    --loops_;
    return &out;
  }
  if (!at(word_do)) unexpected("a loop behind BP_UNROLL");
  Statement& out = statement_node(Statement::Kind::loop_do);
  out.unroll = unroll;
  advance();
  ++loops_;
  out.first = body_of_loop();
  --loops_;
  if (!take(word_while)) unexpected("'while'");
  expect("(");
  out.a = condition(expression());
  expect(")");
  expect(";");
  return &out;
}

Statement* Parser::choice() {
  using enum Keyword;
  Statement& out = statement_node(Statement::Kind::choice);
  advance();
  expect("(");
  out.a = promoted(expression());
  if (!out.a->type->is_integer()) fail(out.line, "a switch by a " + name_of(*out.a->type));
  expect(")");
  expect("{");
  const size_t scope = open_scope();
  ++choices_;
  ++depth_;
  bool has_default = false, was_label = false;
  while (!at("}")) {
    const uint32_t line = token_.line;
    if (at(word_case) || at(word_default)) {
      const bool is_default = at(word_default);
      advance();
      if (!was_label) out.cases.emplace_back();
      was_label = true;
      if (is_default) {
        if (has_default) fail(line, "two defaults in one switch");
        has_default = out.cases.back().is_default = true;
      } else {
        const Expression* label = choice_expression();
        if (label->op != Operator::constant || label->type->is_real()) fail(line, "a case that is not a constant integer");
        const uint64_t bits = cast(const_cast<Expression*>(label), out.a->type)->integer;
        for (const Case& one : out.cases) {
          for (const uint64_t other : one.values) {
            if (other == bits) fail(line, "two equal cases in one switch");
          }
        }
        out.cases.back().values.push_back(bits);
      }
      expect(":");
      continue;
    }
    if (out.cases.empty()) fail(line, "a statement in a switch in front of its first case");
    was_label = false;
    out.cases.back().body.push_back(statement());
  }
  advance();
  --depth_;
  --choices_;
  close_scope(scope);
  return &out;
}

}  // namespace backplane::driver::spirv
