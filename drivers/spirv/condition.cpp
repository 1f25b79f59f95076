// drivers/spirv/condition.cpp: the expressions of #if, and integer literals.
#include <charconv>

#include "preprocessor.h"

namespace backplane::driver::spirv {
namespace {

struct Number {
  uint64_t bits = 0;
  bool is_unsigned = false;
  int64_t number() const { return static_cast<int64_t>(bits); }
};

class Condition {
 public:
  Condition(const std::vector<Token>& tokens, uint32_t line, const std::string& unit) : tokens_(tokens), line_(line), unit_(unit) {}

  int64_t run() {
    const Number out = choice();
    if (at_ != tokens_.size()) fail("'" + std::string(tokens_[at_].text) + "' in the expression of #if");
    return out.number();
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw Error(unit_, line_, message); }
  bool take(const char* code) {
    if (at_ == tokens_.size() || !tokens_[at_].is(code)) return false;
    ++at_;
    return true;
  }

  Number choice() {
    const Number asked = binary(0);
    if (!take("?")) return asked;
    const bool was_dead = is_dead_;
    is_dead_ = was_dead || asked.bits == 0;
    const Number yes = choice();
    if (!take(":")) fail("a ? without : in the expression of #if");
    is_dead_ = was_dead || asked.bits != 0;
    const Number no = choice();
    is_dead_ = was_dead;
    return asked.bits ? yes : no;
  }

  Number binary(int least) {
    Number left = unary();
    while (at_ < tokens_.size()) {
      const int level = precedence(tokens_[at_]);
      if (level < least) break;
      const uint32_t code = tokens_[at_++].code;
      const bool was_dead = is_dead_;
      if ((code == punctuator("||") && left.bits) || (code == punctuator("&&") && !left.bits)) is_dead_ = true;
      const Number right = binary(level + 1);
      is_dead_ = was_dead;
      left = apply(code, left, right);
    }
    return left;
  }

  Number apply(uint32_t code, Number a, Number b) {
    const bool is_unsigned = a.is_unsigned || b.is_unsigned;
    const auto truth = [](bool value) { return Number{value, false}; };
    const auto compared = [&](bool of_unsigned, bool of_signed) { return truth(is_unsigned ? of_unsigned : of_signed); };
    switch (code) {
      case punctuator("||"):
        return truth(a.bits || b.bits);
      case punctuator("&&"):
        return truth(a.bits && b.bits);
      case punctuator("|"):
        return {a.bits | b.bits, is_unsigned};
      case punctuator("^"):
        return {a.bits ^ b.bits, is_unsigned};
      case punctuator("&"):
        return {a.bits & b.bits, is_unsigned};
      case punctuator("=="):
        return truth(a.bits == b.bits);
      case punctuator("!="):
        return truth(a.bits != b.bits);
      case punctuator("<"):
        return compared(a.bits < b.bits, a.number() < b.number());
      case punctuator(">"):
        return compared(a.bits > b.bits, a.number() > b.number());
      case punctuator("<="):
        return compared(a.bits <= b.bits, a.number() <= b.number());
      case punctuator(">="):
        return compared(a.bits >= b.bits, a.number() >= b.number());
      case punctuator("<<"):
        return {a.bits << (b.bits & 63), a.is_unsigned};
      case punctuator(">>"):
        return {a.is_unsigned ? a.bits >> (b.bits & 63) : static_cast<uint64_t>(a.number() >> (b.bits & 63)), a.is_unsigned};
      case punctuator("+"):
        return {a.bits + b.bits, is_unsigned};
      case punctuator("-"):
        return {a.bits - b.bits, is_unsigned};
      case punctuator("*"):
        return {a.bits * b.bits, is_unsigned};
      default:
        break;
    }
    if (b.bits == 0) {
      if (!is_dead_) fail("a division by zero in the expression of #if");
      return {0, is_unsigned};
    }
    const bool is_rest = code == punctuator("%");
    if (is_unsigned) return {is_rest ? a.bits % b.bits : a.bits / b.bits, true};
    if (b.number() == -1) return {is_rest ? 0 : 0 - a.bits, false};
    return {static_cast<uint64_t>(is_rest ? a.number() % b.number() : a.number() / b.number()), false};
  }

  Number unary() {
    if (take("!")) return {unary().bits == 0, false};
    if (take("-")) {
      const Number x = unary();
      return {0 - x.bits, x.is_unsigned};
    }
    if (take("~")) {
      const Number x = unary();
      return {~x.bits, x.is_unsigned};
    }
    if (take("+")) return unary();
    if (take("(")) {
      const Number x = choice();
      if (!take(")")) fail("a ( without ) in the expression of #if");
      return x;
    }
    if (at_ == tokens_.size()) fail("the expression of #if ends too early");
    const Token& token = tokens_[at_++];
    if (token.kind == Token::Kind::name) return {};
    Number out;
    bool is_long = false;
    if (token.kind != Token::Kind::number || !integer_value(token.text, out.bits, out.is_unsigned, is_long)) {
      fail("'" + std::string(token.text) + "' in the expression of #if");
    }
    return out;
  }

  const std::vector<Token>& tokens_;
  const uint32_t line_;
  const std::string& unit_;
  size_t at_ = 0;
  bool is_dead_ = false;  // in an operand that is not evaluated
};

}  // namespace

int64_t evaluate(const std::vector<Token>& tokens, uint32_t line, const std::string& unit) { return Condition(tokens, line, unit).run(); }

bool integer_value(std::string_view text, uint64_t& value, bool& is_unsigned, bool& is_long) {
  is_unsigned = is_long = false;
  while (!text.empty()) {
    const char last = static_cast<char>(text.back() | 0x20);
    if (last == 'u' && !is_unsigned) {
      is_unsigned = true;
    } else if (last == 'l') {
      is_long = true;
    } else {
      break;
    }
    text.remove_suffix(1);
  }
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == 'x') {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace backplane::driver::spirv
