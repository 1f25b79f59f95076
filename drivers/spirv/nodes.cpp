// drivers/spirv/nodes.cpp: nodes of expressions: places, pointers, calls and assignments.
#include "parser.h"

namespace backplane::driver::spirv {

bool is_place(const Expression& e) {
  return e.op == Operator::variable || e.op == Operator::element || (e.op == Operator::member && is_place(*e.a));
}

Space space_of(const Expression& place) {
  if (place.op == Operator::variable) return place.variable->role == Variable::Role::local_array ? Space::local : Space::of_private;
  if (place.op == Operator::element && place.a->type->is_pointer()) return place.a->type->space;
  return place.a ? space_of(*place.a) : Space::of_private;
}

namespace {

bool is_const_place(const Expression& place) {
  if (place.op == Operator::variable) return place.variable->is_const;
  if (place.op == Operator::element && place.a->type->is_pointer()) return place.a->type->points_to_const;
  return is_const_place(*place.a);
}

const Expression& root(const Expression& place) {
  const bool is_inner = place.op == Operator::member || (place.op == Operator::element && place.a->type->kind == Kind::array);
  return is_inner ? root(*place.a) : place;
}

}  // namespace

Expression* Builder::node(Operator op, const Type* type, uint32_t line, Expression* a, Expression* b, Expression* c) {
  Expression& out = unit_.expressions.emplace_back();
  out.op = op;
  out.type = type;
  out.line = line;
  out.a = a;
  out.b = b;
  out.c = c;
  return &out;
}

void Builder::must_be_place(const Expression* e, const char* what) {
  if (!is_place(*e)) fail(e->line, std::string(what) + " of what is not stored anywhere");
}

void Builder::mark_assigned(Expression* place, uint32_t line) {
  must_be_place(place, "an assignment");
  if (is_const_place(*place)) fail(line, "an assignment to what is const");
  const Expression& variable = root(*place);
  if (variable.op == Operator::variable) variable.variable->is_assigned = true;
}

Expression* Builder::value(Expression* e) {
  if (e->type->kind != Kind::array) return e;
  const Space space = space_of(*e);
  if (space == Space::of_private) {
    fail(e->line, "the address of an array of one item: pointers point to device memory (BP_GLOBAL) or to local arrays (BP_LOCAL)");
  }
  if (e->type->element->kind == Kind::array) fail(e->line, "the address of an array of arrays: take that of an element");
  return node(Operator::decay, unit_.types.pointer(e->type->element, space, is_const_place(*e)), e->line, e);
}

Expression* Builder::move(Expression* pointer, Expression* by, bool is_back, uint32_t line) {
  by = promoted(by);
  if (!by->type->is_integer()) fail(line, "a pointer moved by a " + name_of(*by->type));
  if (is_back) by = unary(punctuator("-"), cast(by, scalar(Kind::i64)), line);
  return node(Operator::move, pointer->type, line, pointer, by);
}

Expression* Builder::element(Expression* a, Expression* b, uint32_t line) {
  if (a->type->kind != Kind::array) a = value(a);
  b = promoted(b);
  if (!b->type->is_integer()) fail(line, "an index of type " + name_of(*b->type));
  if (a->type->kind != Kind::array && !a->type->is_pointer()) fail(line, "an index into a " + name_of(*a->type));
  return node(Operator::element, a->type->element, line, a, b);
}

Expression* Builder::member(Expression* a, std::string_view name, uint32_t line) {
  if (a->type->kind != Kind::structure) fail(line, "the member " + std::string(name) + " of a " + name_of(*a->type));
  const std::vector<Member>& members = a->type->record->members;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].name != name) continue;
    Expression* out = node(Operator::member, members[i].type, line, a);
    out->member = static_cast<uint32_t>(i);
    return out;
  }
  fail(line, name_of(*a->type) + " has no member " + std::string(name));
}

Expression* Builder::assign(Expression* a, Expression* b, uint32_t line) {
  mark_assigned(a, line);
  if (a->type->kind == Kind::array) fail(line, "an assignment to an array");
  return node(Operator::assign, a->type, line, a, converted(b, a->type, "an assignment"));
}

Expression* Builder::update(uint32_t code, Expression* a, Expression* b, bool is_postfix, uint32_t line) {
  mark_assigned(a, line);
  Expression* change = nullptr;  // of a by b, for its conversions
  if (a->type->is_pointer()) {
    if (code != '+' && code != '-') fail(line, "a pointer moves by += and -= alone");
    change = move(a, b, code == '-', line);
  } else {
    change = binary(code, promoted(a), b, line);
  }
  Expression* out = node(Operator::update, a->type, line, a, change->b);
  out->by = change->op;
  out->is_postfix = is_postfix;
  if (out->by < Operator::add || out->by > Operator::bit_xor) {
    if (out->by != Operator::move) fail(line, "an assignment by an operator that computes nothing");
  }
  return out;
}

Expression* Builder::call(const Function& function, std::vector<Expression*> arguments, uint32_t line) {
  const std::string name(function.name);
  if (function.is_kernel) fail(line, "a call of the kernel " + name);
  if (arguments.size() != function.parameters.size()) {
    fail(line, name + " takes " + std::to_string(function.parameters.size()) + " arguments, not " + std::to_string(arguments.size()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    arguments[i] = converted(arguments[i], function.parameters[i]->type, ("argument " + std::to_string(i + 1) + " of " + name).c_str());
  }
  Expression* out = node(Operator::call, function.result, line);
  out->function = &function;
  out->arguments = std::move(arguments);
  return out;
}

Expression* Builder::call(const Builtin& word, std::vector<Expression*> arguments, uint32_t line) {
  const std::string name(word.dialect.empty() ? word.name : word.dialect);
  if (arguments.size() != word.takes.size()) {
    fail(line, name + " takes " + std::to_string(word.takes.size()) + " arguments, not " + std::to_string(arguments.size()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const char letter = word.takes[i];
    const std::string what = "argument " + std::to_string(i + 1) + " of " + name;
    if (letter == 'p') {
      arguments[i] = value(arguments[i]);
      const Type& type = *arguments[i]->type;
      const uint64_t size = scalar(kind_of_letter(word.takes.back()))->size();
      if (!type.is_pointer() || type.space != Space::global || type.points_to_const || type.element->size() != size) {
        fail(line, what + " is a " + name_of(type) + ", not a pointer to device memory of " + std::to_string(size) +
                       " bytes that may be written");
      }
    } else if (letter == 'c') {
      arguments[i] = promoted(arguments[i]);
      if (arguments[i]->op != Operator::constant || arguments[i]->integer > 2) fail(line, what + " is a literal 0, 1 or 2");
    } else {
      arguments[i] = converted(arguments[i], scalar(kind_of_letter(letter)), what.c_str());
    }
  }
  Expression* out = node(Operator::builtin, scalar(kind_of_letter(word.result)), line);
  out->word = &word;
  out->arguments = std::move(arguments);
  return out;
}

Expression* Builder::unary(uint32_t code, Expression* a, uint32_t line) {
  if (code == '!') {
    a = condition(a);
    if (a->op == Operator::constant) return constant(Kind::boolean, static_cast<uint64_t>(a->integer == 0), line);
    return node(Operator::logical_not, a->type, line, a);
  }
  if (code == '&') {
    must_be_place(a, "the address");
    const Space space = space_of(*a);
    if (space == Space::of_private) {
      fail(line, "the address of a variable of one item: pointers point to device memory (BP_GLOBAL) or to local arrays (BP_LOCAL)");
    }
    if (a->op == Operator::element && a->a->type->is_pointer()) return node(Operator::move, a->a->type, line, a->a, a->b);
    const Type* type = a->type->kind == Kind::array ? a->type->element : a->type;
    return node(Operator::address, unit_.types.pointer(type, space, is_const_place(*a)), line, a);
  }
  if (code == '*') {
    a = value(a);
    if (!a->type->is_pointer()) fail(line, "* of a " + name_of(*a->type));
    return node(Operator::element, a->type->element, line, a, constant(Kind::i32, uint64_t{0}, line));
  }
  a = promoted(a);
  if (!a->type->is_number() || (code == '~' && !a->type->is_integer())) {
    fail(line, std::string(1, static_cast<char>(code)) + " of a " + name_of(*a->type));
  }
  if (code == '+') return a;
  if (a->op == Operator::constant) {
    if (a->type->is_real()) return constant(a->type->kind, -a->real, line);
    return constant(a->type->kind, code == '-' ? 0 - a->integer : ~a->integer, line);
  }
  return node(code == '-' ? Operator::negate : Operator::complement, a->type, line, a);
}

}  // namespace backplane::driver::spirv
