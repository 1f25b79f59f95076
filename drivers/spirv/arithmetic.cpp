// drivers/spirv/arithmetic.cpp: C's conversions and operators of numbers, with constants folded.
#include <utility>

#include "parser.h"

namespace backplane::driver::spirv {
namespace {

/// Bits as a constant of the type has them: cut to its width, extended by its sign.
uint64_t wrapped(uint64_t bits, Kind kind) {
  switch (kind) {
    case Kind::boolean:
      return bits != 0;
    case Kind::i8:
      return static_cast<uint64_t>(static_cast<int8_t>(bits));
    case Kind::u8:
      return static_cast<uint8_t>(bits);
    case Kind::i16:
      return static_cast<uint64_t>(static_cast<int16_t>(bits));
    case Kind::u16:
      return static_cast<uint16_t>(bits);
    case Kind::i32:
      return static_cast<uint64_t>(static_cast<int32_t>(bits));
    case Kind::u32:
      return static_cast<uint32_t>(bits);
    default:
      return bits;
  }
}

bool is_constant(const Expression* e) { return e->op == Operator::constant; }

}  // namespace

Expression* Builder::constant(Kind kind, uint64_t bits, uint32_t line) {
  Expression* out = node(Operator::constant, scalar(kind), line);
  out->integer = wrapped(bits, kind);
  return out;
}

Expression* Builder::constant(Kind kind, double value, uint32_t line) {
  Expression* out = node(Operator::constant, scalar(kind), line);
  out->real = kind == Kind::f32 ? static_cast<double>(static_cast<float>(value)) : value;
  return out;
}

/// Of numbers and booleans.
Expression* Builder::convert(Expression* e, const Type* type) {
  if (e->type == type) return e;
  if (is_constant(e)) {
    if (!e->type->is_real() && !type->is_real()) return constant(type->kind, e->integer, e->line);
    if (type->kind == Kind::f32 && !e->type->is_real()) {  // rounded once
      const bool is_negative = e->type->is_signed() && static_cast<int64_t>(e->integer) < 0;
      const float value = is_negative ? static_cast<float>(static_cast<int64_t>(e->integer)) : static_cast<float>(e->integer);
      return constant(Kind::f32, static_cast<double>(value), e->line);
    }
    if (type->kind == Kind::f64 && !e->type->is_real()) {
      const bool is_negative = e->type->is_signed() && static_cast<int64_t>(e->integer) < 0;
      return constant(Kind::f64, is_negative ? static_cast<double>(static_cast<int64_t>(e->integer)) : static_cast<double>(e->integer),
                      e->line);
    }
    if (type->is_real()) return constant(type->kind, e->real, e->line);
    if (type->kind == Kind::boolean) return constant(Kind::boolean, static_cast<uint64_t>(e->real != 0), e->line);
  }
  return node(Operator::convert, type, e->line, e);
}

Expression* Builder::promoted(Expression* e) {
  e = value(e);
  if (e->type->kind < Kind::i32 && e->type->kind >= Kind::boolean) return convert(e, scalar(Kind::i32));
  return e;
}

Expression* Builder::condition(Expression* e) {
  e = value(e);
  if (!e->type->is_scalar()) fail(e->line, "a condition of type " + name_of(*e->type));
  return convert(e, scalar(Kind::boolean));
}

Expression* Builder::converted(Expression* e, const Type* type, const char* what) {
  e = value(e);
  const Type* from = e->type;
  if (from == type) return e;
  const bool are_numbers = (from->is_number() || from->kind == Kind::boolean) && type->is_number();
  if (are_numbers) return convert(e, type);
  if (type->is_pointer()) {
    if (is_constant(e) && from->is_integer() && e->integer == 0) return node(Operator::convert, type, e->line, e);
    if (from->is_pointer() && from->element == type->element && from->space == type->space &&
        (type->points_to_const || !from->points_to_const)) {
      return node(Operator::convert, type, e->line, e);
    }
  }
  fail(e->line, std::string(what) + ": a " + name_of(*from) + " where a " + name_of(*type) + " belongs");
}

Expression* Builder::cast(Expression* e, const Type* type) {
  if (type->kind == Kind::none) return node(Operator::convert, type, e->line, e);
  e = value(e);
  const Type* from = e->type;
  if (from == type) return e;
  const auto is_number = [](const Type* one) { return one->is_number() || one->kind == Kind::boolean; };
  if (is_number(from) && is_number(type)) return convert(e, type);
  const auto is_wide = [](const Type* one) { return one->kind == Kind::i64 || one->kind == Kind::u64; };
  if (from->is_pointer() && type->is_pointer() && from->space == type->space) return node(Operator::convert, type, e->line, e);
  if (from->is_pointer() && from->space == Space::global && is_wide(type)) return node(Operator::convert, type, e->line, e);
  if (type->is_pointer() && type->space == Space::global && from->is_integer()) {
    return node(Operator::convert, type, e->line, convert(e, scalar(from->is_signed() ? Kind::i64 : Kind::u64)));
  }
  fail(e->line, "a cast of a " + name_of(*from) + " to a " + name_of(*type));
}

void Builder::balance(Expression*& a, Expression*& b, const char* what) {
  a = promoted(a);
  b = promoted(b);
  for (const Expression* one : {a, b}) {
    if (!one->type->is_number()) fail(one->line, std::string(what) + " of a " + name_of(*one->type));
  }
  const Type* type = a->type->kind > b->type->kind ? a->type : b->type;
  a = convert(a, type);
  b = convert(b, type);
}

Expression* Builder::conditional(Expression* a, Expression* b, Expression* c, uint32_t line) {
  a = condition(a);
  b = value(b);
  c = value(c);
  const Type* type = b->type;
  if (type->is_pointer() || c->type->is_pointer()) {
    if (!type->is_pointer() || (c->type->is_pointer() && c->type->points_to_const)) type = c->type;
    b = converted(b, type, "a choice");
    c = converted(c, type, "a choice");
  } else if (type != c->type) {
    balance(b, c, "a choice");
    type = b->type;
  } else if (type->kind < Kind::i32 && type->kind > Kind::boolean) {
    b = promoted(b);
    c = promoted(c);
    type = b->type;
  }
  if (is_constant(a)) return a->integer ? b : c;
  return node(Operator::conditional, type, line, a, b, c);
}

Expression* Builder::binary(uint32_t code, Expression* a, Expression* b, uint32_t line) {
  if (code == punctuator("&&") || code == punctuator("||")) {
    const bool is_and = code == punctuator("&&");
    a = condition(a);
    b = condition(b);
    if (is_constant(a)) return (a->integer != 0) == is_and ? b : a;
    if (is_constant(b) && (b->integer != 0) == is_and) return a;
    return node(is_and ? Operator::logical_and : Operator::logical_or, a->type, line, a, b);
  }
  static constexpr std::pair<uint32_t, Operator> kOperators[] = {
      {'+', Operator::add},
      {'-', Operator::subtract},
      {'*', Operator::multiply},
      {'/', Operator::divide},
      {'%', Operator::remainder},
      {'&', Operator::bit_and},
      {'|', Operator::bit_or},
      {'^', Operator::bit_xor},
      {'<', Operator::less},
      {'>', Operator::greater},
      {punctuator("<<"), Operator::shift_left},
      {punctuator(">>"), Operator::shift_right},
      {punctuator("<="), Operator::less_equal},
      {punctuator(">="), Operator::greater_equal},
      {punctuator("=="), Operator::equal},
      {punctuator("!="), Operator::not_equal},
  };
  Operator op = Operator::add;
  std::string text;
  for (const auto& [known, its] : kOperators) {
    if (known == code) op = its;
  }
  for (uint32_t rest = code; rest; rest >>= 8) text += static_cast<char>(rest & 0xff);
  const bool compares = op >= Operator::less && op <= Operator::not_equal;
  a = value(a);
  b = value(b);
  if (a->type->is_pointer() || b->type->is_pointer()) {
    if (op == Operator::add && !a->type->is_pointer()) std::swap(a, b);
    if (op == Operator::add || (op == Operator::subtract && !b->type->is_pointer())) return move(a, b, op == Operator::subtract, line);
    const bool is_equality = op == Operator::equal || op == Operator::not_equal;
    const auto is_null = [](const Expression* e) { return is_constant(e) && e->type->is_integer() && e->integer == 0; };
    if (is_equality && is_null(b)) b = converted(b, a->type, "a comparison");
    if (is_equality && is_null(a)) a = converted(a, b->type, "a comparison");
    const bool match =
        a->type->is_pointer() && b->type->is_pointer() && a->type->element == b->type->element && a->type->space == b->type->space;
    if (match && compares) return node(op, scalar(Kind::boolean), line, a, b);
    if (match && op == Operator::subtract) return node(Operator::distance, scalar(Kind::i64), line, a, b);
    fail(line, text + " of a " + name_of(*a->type) + " and a " + name_of(*b->type));
  }
  if (op == Operator::shift_left || op == Operator::shift_right) {
    a = promoted(a);
    b = promoted(b);
    if (!a->type->is_integer() || !b->type->is_integer()) fail(line, text + " of a " + name_of(*a->type) + " by a " + name_of(*b->type));
    b = convert(b, a->type);
  } else {
    balance(a, b, text.c_str());
  }
  const bool is_real = a->type->is_real();
  if (is_real && (op == Operator::remainder || op >= Operator::shift_left) && !compares) fail(line, text + " of a " + name_of(*a->type));
  if (!is_real && is_constant(a) && is_constant(b)) {
    if (Expression* folded = fold(op, a, b, a->type, line)) return folded;
  }
  return node(op, compares ? scalar(Kind::boolean) : a->type, line, a, b);
}

Expression* Builder::fold(Operator op, Expression* a, Expression* b, const Type* type, uint32_t line) {
  const uint64_t x = a->integer, y = b->integer;
  const auto sx = static_cast<int64_t>(x), sy = static_cast<int64_t>(y);
  const bool is_signed = type->is_signed();
  const auto truth = [&](bool of_signed, bool of_unsigned) {
    return constant(Kind::boolean, static_cast<uint64_t>(is_signed ? of_signed : of_unsigned), line);
  };
  const auto number = [&](uint64_t bits) { return constant(type->kind, bits, line); };
  switch (op) {
    case Operator::add:
      return number(x + y);
    case Operator::subtract:
      return number(x - y);
    case Operator::multiply:
      return number(x * y);
    case Operator::divide:
    case Operator::remainder: {
      if (y == 0) return nullptr;
      const bool is_rest = op == Operator::remainder;
      if (!is_signed) return number(is_rest ? x % y : x / y);
      if (sy == -1) return number(is_rest ? 0 : 0 - x);
      return number(static_cast<uint64_t>(is_rest ? sx % sy : sx / sy));
    }
    case Operator::shift_left:
    case Operator::shift_right:
      if (y >= 8 * type->size()) return nullptr;
      if (op == Operator::shift_left) return number(x << y);
      return number(is_signed ? static_cast<uint64_t>(sx >> y) : x >> y);
    case Operator::bit_and:
      return number(x & y);
    case Operator::bit_or:
      return number(x | y);
    case Operator::bit_xor:
      return number(x ^ y);
    case Operator::less:
      return truth(sx < sy, x < y);
    case Operator::less_equal:
      return truth(sx <= sy, x <= y);
    case Operator::greater:
      return truth(sx > sy, x > y);
    case Operator::greater_equal:
      return truth(sx >= sy, x >= y);
    case Operator::equal:
      return truth(x == y, x == y);
    case Operator::not_equal:
      return truth(x != y, x != y);
    default:
      return nullptr;
  }
}

}  // namespace backplane::driver::spirv
