// drivers/spirv/tokens.cpp: the lexer.
#include "tokens.h"

#include <cctype>

#include "keywords.h"

namespace backplane::driver::spirv {
namespace {

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view text, Names& names, const std::string& unit) : text_(text), names_(names), unit_(unit) {}

  std::vector<Token> run() {
    std::vector<Token> out;
    out.reserve(text_.size() / 4);
    for (;;) {
      skip_space();
      if (at_ >= text_.size()) return out;
      Token token = next();
      token.line = line_;
      token.begins_line = begins_line_;
      token.has_space = has_space_;
      begins_line_ = has_space_ = false;
      out.push_back(token);
    }
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  [[noreturn]] void fail(const std::string& message) const { throw Error(unit_, line_, message); }

  void skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        begins_line_ = true;
      } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
        at_ += peek(1) == '\r' ? 2 : 1;
        ++line_;
      } else if (c == '/' && peek(1) == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        has_space_ = true;
        continue;
      } else if (c == '/' && peek(1) == '*') {
        const size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) fail("a comment that does not end");
        for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
        at_ = end + 1;
      } else if (!std::isspace(static_cast<unsigned char>(c))) {
        return;
      }
      has_space_ = true;
      ++at_;
    }
  }

  Token next() {
    const size_t begin = at_;
    const char c = peek();
    Token out;
    if (begins_name(c)) {
      while (in_name(peek())) ++at_;
      out.kind = Token::Kind::name;
      out.text = text_.substr(begin, at_ - begin);
      out.symbol = &names_.symbol(out.text);
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      // A "preprocessing number": what it is worth is the parser's concern.
      while (in_name(peek()) || peek() == '.' || ((peek() == '+' || peek() == '-') && exponent(text_[at_ - 1], begin))) ++at_;
      out.kind = Token::Kind::number;
      out.text = text_.substr(begin, at_ - begin);
    } else if (c == '"' || c == '\'') {
      for (++at_; peek() != c; ++at_) {
        if (at_ >= text_.size() || peek() == '\n') fail(std::string("a ") + c + " that does not end");
        if (peek() == '\\') ++at_;
      }
      ++at_;
      out.kind = c == '"' ? Token::Kind::string : Token::Kind::character;
      out.text = text_.substr(begin, at_ - begin);
    } else {
      out.kind = Token::Kind::punctuator;
      size_t length = 1;
      for (const std::string_view longer : {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=",
                                            "&&",  "||",  "*=",  "/=", "%=", "+=", "-=", "&=", "^=", "|=", "##"}) {
        if (text_.substr(at_, longer.size()) == longer) {
          length = longer.size();
          break;
        }
      }
      if (length == 1 && std::string_view("[](){}.&*+-~!/%<>^|?:;=,#").find(c) == std::string_view::npos) {
        fail(std::string("a character that the dialect does not have: '") + c + "'");
      }
      out.text = text_.substr(at_, length);
      at_ += length;
      for (size_t i = 0; i < length; ++i) out.code |= static_cast<uint32_t>(static_cast<unsigned char>(out.text[i])) << (8 * i);
    }
    return out;
  }

  bool exponent(char last, size_t begin) const {
    const bool is_hex = text_.substr(begin, 2) == "0x" || text_.substr(begin, 2) == "0X";
    return is_hex ? last == 'p' || last == 'P' : last == 'e' || last == 'E';
  }

  const std::string_view text_;
  Names& names_;
  const std::string& unit_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool begins_line_ = true;
  bool has_space_ = false;
};

}  // namespace

Names::Names() {
  for (const auto& [name, keyword] : keywords()) symbol(name).keyword = keyword;
}

Symbol& Names::symbol(std::string_view name) {
  const auto found = table_.find(name);
  if (found != table_.end()) return *found->second;
  Symbol& out = symbols_.emplace_back();
  out.name = keep(std::string(name));
  table_.emplace(out.name, &out);
  return out;
}

std::vector<Token> tokenize(std::string_view text, Names& names, const std::string& unit) { return Lexer(text, names, unit).run(); }

int precedence(const Token& token) {
  if (token.kind != Token::Kind::punctuator) return -1;
  switch (token.code) {
    case punctuator("||"):
      return 0;
    case punctuator("&&"):
      return 1;
    case punctuator("|"):
      return 2;
    case punctuator("^"):
      return 3;
    case punctuator("&"):
      return 4;
    case punctuator("=="):
    case punctuator("!="):
      return 5;
    case punctuator("<"):
    case punctuator(">"):
    case punctuator("<="):
    case punctuator(">="):
      return 6;
    case punctuator("<<"):
    case punctuator(">>"):
      return 7;
    case punctuator("+"):
    case punctuator("-"):
      return 8;
    case punctuator("*"):
    case punctuator("/"):
    case punctuator("%"):
      return 9;
    default:
      return -1;
  }
}

}  // namespace backplane::driver::spirv
