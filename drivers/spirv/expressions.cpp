// drivers/spirv/expressions.cpp: the grammar of expressions.
#include <charconv>

#include "parser.h"

namespace backplane::driver::spirv {
namespace {

constexpr size_t kMaxNesting = 1000;

/// The operator of "+=" and its like; 0: it is none.
uint32_t updating(const Token& token) {
  switch (token.kind == Token::Kind::punctuator ? token.code : 0) {
    case punctuator("+="):
      return '+';
    case punctuator("-="):
      return '-';
    case punctuator("*="):
      return '*';
    case punctuator("/="):
      return '/';
    case punctuator("%="):
      return '%';
    case punctuator("&="):
      return '&';
    case punctuator("|="):
      return '|';
    case punctuator("^="):
      return '^';
    case punctuator("<<="):
      return punctuator("<<");
    case punctuator(">>="):
      return punctuator(">>");
    default:
      return 0;
  }
}

}  // namespace

Expression* Parser::expression() {
  Expression* out = assignment();
  while (at(",")) {
    const uint32_t line = token_.line;
    advance();
    Expression* next = value(assignment());
    out = node(Operator::comma, next->type, line, out, next);
  }
  return out;
}

Expression* Parser::assignment() {
  if (++nesting_ > kMaxNesting) fail(token_.line, "an expression of more than " + std::to_string(kMaxNesting) + " levels");
  Expression* out = choice_expression();
  const uint32_t line = token_.line;
  if (take("=")) {
    out = assign(out, assignment(), line);
  } else if (const uint32_t code = updating(token_)) {
    advance();
    out = update(code, out, assignment(), false, line);
  }
  --nesting_;
  return out;
}

Expression* Parser::choice_expression() {
  Expression* asked = binary_expression(0);
  if (!at("?")) return asked;
  const uint32_t line = token_.line;
  advance();
  Expression* yes = expression();
  expect(":");
  if (++nesting_ > kMaxNesting) fail(token_.line, "an expression of more than " + std::to_string(kMaxNesting) + " levels");
  Expression* no = choice_expression();
  --nesting_;
  return conditional(asked, yes, no, line);
}

Expression* Parser::binary_expression(int least) {
  Expression* left = unary_expression();
  for (int level = precedence(token_); level >= least; level = precedence(token_)) {
    const uint32_t code = token_.code, line = token_.line;
    advance();
    left = binary(code, left, binary_expression(level + 1), line);
  }
  return left;
}

Expression* Parser::unary_expression() {
  const uint32_t line = token_.line;
  if (++nesting_ > kMaxNesting) fail(line, "an expression of more than " + std::to_string(kMaxNesting) + " levels");
  Expression* out = nullptr;
  if (token_.kind == Token::Kind::punctuator) {
    switch (token_.code) {
      case punctuator("++"):
      case punctuator("--"): {
        const uint32_t code = token_.code & 0xff;
        advance();
        out = update(code, unary_expression(), constant(Kind::i32, uint64_t{1}, line), false, line);
        break;
      }
      case '-':
      case '+':
      case '~':
      case '!':
      case '*':
      case '&': {
        const uint32_t code = token_.code;
        advance();
        out = unary(code, unary_expression(), line);
        break;
      }
      case '(':
        advance();
        if (begins_type()) {
          const Type* type = type_name();
          expect(")");
          if (at("{")) fail(line, "a compound literal: declare a variable");
          out = cast(unary_expression(), type);
        } else {
          out = expression();
          expect(")");
          out = postfix_of(out);
        }
        break;
      default:
        break;
    }
  } else if (take(Keyword::word_sizeof)) {
    const Type* type = nullptr;
    if (at("(")) {
      advance();
      type = begins_type() ? type_name() : expression()->type;
      expect(")");
    } else {
      type = unary_expression()->type;
    }
    if (type->size() == 0) fail(line, "sizeof of a " + name_of(*type));
    out = constant(Kind::u64, type->size(), line);
  }
  if (!out) out = postfix_of(primary());
  --nesting_;
  return out;
}

Expression* Parser::postfix_of(Expression* out) {
  for (;;) {
    const uint32_t line = token_.line;
    if (take("[")) {
      Expression* index = expression();
      expect("]");
      out = element(out, index, line);
    } else if (take(".")) {
      out = member(out, token_.text, line);
      advance();
    } else if (take("->")) {
      out = member(unary('*', out, line), token_.text, line);
      advance();
    } else if (at("++") || at("--")) {
      const uint32_t code = token_.code & 0xff;
      advance();
      out = update(code, out, constant(Kind::i32, uint64_t{1}, line), true, line);
    } else {
      return out;
    }
  }
}

std::vector<Expression*> Parser::arguments() {
  std::vector<Expression*> out;
  expect("(");
  while (!at(")")) {
    out.push_back(assignment());
    if (!take(",")) break;
  }
  expect(")");
  return out;
}

Expression* Parser::primary() {
  const uint32_t line = token_.line;
  if (token_.kind == Token::Kind::number) return number();
  if (token_.kind == Token::Kind::character) {
    const std::string_view text = token_.text;
    if (text.size() != 3) fail(line, "the character " + std::string(text) + ": plain ones alone");
    advance();
    return constant(Kind::i32, static_cast<uint64_t>(static_cast<unsigned char>(text[1])), line);
  }
  if (token_.kind != Token::Kind::name || token_.symbol->keyword != Keyword::none) unexpected("an expression");
  Symbol& symbol = *token_.symbol;
  const std::string name(symbol.name);
  advance();
  const Binding* binding = lookup(symbol);
  if (at("(")) {
    if (binding && binding->kind == Binding::Kind::function) {
      if (binding->function == current_) fail(line, "the function " + name + " calls itself");
      return call(*binding->function, arguments(), line);
    }
    const Builtin* word = binding ? nullptr : find_builtin(name);
    if (word) {
      const bool is_index = word->word == Word::item || word->word == Word::group_id || word->word == Word::groups;
      if (is_index && current_ && !current_->is_kernel) fail(line, std::string(word->dialect) + " outside of a kernel's body");
      return call(*word, arguments(), line);
    }
    fail(line, binding ? "'" + name + "' is called, and is no function" : "the function " + name + " is not declared");
  }
  if (!binding) fail(line, "'" + name + "' is not declared");
  if (binding->kind == Binding::Kind::constant) return constant(Kind::i32, static_cast<uint64_t>(binding->number), line);
  if (binding->kind != Binding::Kind::variable) fail(line, "'" + name + "' is not a value");
  Expression* out = node(Operator::variable, binding->variable->type, line);
  out->variable = binding->variable;
  return out;
}

Expression* Parser::number() {
  const uint32_t line = token_.line;
  std::string_view text = token_.text;
  advance();
  uint64_t bits = 0;
  bool is_unsigned = false, is_long = false;
  if (integer_value(text, bits, is_unsigned, is_long)) {
    const bool is_decimal = text[0] != '0';
    Kind kind = Kind::u64;
    if (!is_long && bits <= INT32_MAX && !is_unsigned) {
      kind = Kind::i32;
    } else if (!is_long && bits <= UINT32_MAX && (is_unsigned || !is_decimal)) {
      kind = Kind::u32;
    } else if (bits <= INT64_MAX && !is_unsigned) {
      kind = Kind::i64;
    }
    return constant(kind, bits, line);
  }
  const bool is_hex = text.size() > 2 && (text[1] | 0x20) == 'x';
  const std::string_view whole = text;
  if (is_hex) text.remove_prefix(2);
  const bool is_f32 = (text.back() | 0x20) == 'f' && (!is_hex || text.find_first_of("pP") != std::string_view::npos);
  if (is_f32) text.remove_suffix(1);
  const auto format = is_hex ? std::chars_format::hex : std::chars_format::general;
  const auto read = [&](auto value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, format);
    // Too small is a zero, or a subnormal that the library does not read; too large is refused.
    if (end != text.data() + text.size() || error == std::errc::invalid_argument)
      fail(line, "'" + std::string(whole) + "' is not a number");
    if (error == std::errc::result_out_of_range) fail(line, "the number " + std::string(whole) + " is out of range");
    return static_cast<double>(value);
  };
  return is_f32 ? constant(Kind::f32, read(0.0f), line) : constant(Kind::f64, read(0.0), line);
}

}  // namespace backplane::driver::spirv
