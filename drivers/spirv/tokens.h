// drivers/spirv/tokens.h: a text as tokens, with interned names; comments and continued lines are gone.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spirv.h"

namespace backplane::driver::spirv {

struct Macro;
struct Binding;
enum class Keyword : uint8_t;

/// A name, once for all its occurrences: what it means to the preprocessor and, innermost scope last, to the parser.
struct Symbol {
  std::string_view name;
  const Macro* macro = nullptr;
  Binding* binding = nullptr;
  Keyword keyword{};
  bool is_expanding = false;  // its macro is, so that it is not expanded again
};

/// Characters of a punctuator as one number: punctuator("<<=").
constexpr uint32_t punctuator(const char* text) {
  uint32_t out = 0;
  for (int shift = 0; *text; ++text, shift += 8) out |= static_cast<uint32_t>(static_cast<unsigned char>(*text)) << shift;
  return out;
}

struct Token {
  enum class Kind : uint8_t { end, name, number, string, character, punctuator, nothing };
  Kind kind = Kind::end;
  bool begins_line = false;
  bool has_space = false;  // in front
  bool is_final = false;   // a name that is not expanded any more
  uint32_t line = 0;
  uint32_t code = 0;         // of a punctuator
  Symbol* symbol = nullptr;  // of a name
  std::string_view text;

  bool is(const char* characters) const { return kind == Kind::punctuator && code == punctuator(characters); }
  bool is_name(std::string_view name) const { return kind == Kind::name && text == name; }
};

/// Of an operator of two operands, from 0, || , to 9, * / %; -1: it is none.
int precedence(const Token& token);

/// Interns names, and keeps texts that tokens point into.
class Names {
 public:
  Names();
  Symbol& symbol(std::string_view name);
  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }

 private:
  std::unordered_map<std::string_view, Symbol*> table_;
  std::deque<Symbol> symbols_;
  std::deque<std::string> texts_;
};

/// The tokens of a text, which must outlive them, without one of kind end. Throws Error.
std::vector<Token> tokenize(std::string_view text, Names& names, const std::string& unit);

}  // namespace backplane::driver::spirv
