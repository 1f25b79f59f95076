// drivers/spirv/preprocessor.h: C's preprocessor over the tokens of one text. There are no files to include.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tokens.h"

namespace backplane::driver::spirv {

struct Macro {
  Symbol* name = nullptr;
  bool is_function = false;
  bool is_variadic = false;  // the last parameter is __VA_ARGS__
  std::vector<Symbol*> parameters;
  std::vector<Token> body;
  std::vector<int32_t> parameter_of;  // of each token of body: the number of a parameter, or -1
  bool joins = false;                 // body has # or ##
  enum class Special : uint8_t { none, line, file } special = Special::none;
};

class Preprocessor {
 public:
  /// The text must outlive this. defined: macros, name and body.
  Preprocessor(std::string_view text, Names& names, const std::string& unit,
               const std::vector<std::pair<std::string, std::string>>& defined);

  /// The next token after expansion; of kind end at the end. Its line is that of the text, or as #line has it.
  Token next();

  /// Of #line, or the unit's.
  const std::string& file() const { return file_; }
  /// The value of a macro that is one integer, or fallback.
  int64_t value_of(std::string_view macro, int64_t fallback);

 private:
  struct Context {  // tokens that are read before the text goes on
    const Token* at;
    const Token* end;
    Symbol* expanding;  // enabled again when the context ends
    std::vector<Token> storage;
  };
  struct Group {  // an #if that is open
    uint32_t line;
    bool was_taken, is_taken, has_else;
  };
  using Arguments = std::vector<std::vector<Token>>;

  [[noreturn]] void fail(uint32_t line, const std::string& message) const { throw Error(file_, line, message); }

  // preprocessor.cpp: directives
  bool read_text(Token& out);  // the next token outside directives
  void directive();
  std::vector<Token> rest_of_line();
  void define(std::vector<Token> line);
  void skip_group();
  bool condition(const std::vector<Token>& line, uint32_t number);
  void line_directive(const std::vector<Token>& line);

  // expansion.cpp
  bool read(Token& out);  // from contexts, else from the text unless confined
  bool next_is_parenthesis();
  bool expand(const Token& name);
  Arguments read_arguments(const Macro& macro, const Token& name);
  std::vector<Token> substitute(const Macro& macro, const Arguments& arguments, const Token& name);
  std::vector<Token> expand_all(const std::vector<Token>& tokens);
  Token join(const Token& left, const Token& right);
  Token text_of(const std::vector<Token>& tokens);
  void push(std::vector<Token> tokens, Symbol* expanding);
  Token special(const Macro& macro, const Token& name);

  Names& names_;
  std::string file_;
  std::vector<Token> text_;
  size_t at_ = 0;
  int64_t line_shift_ = 0;
  std::deque<Macro> macros_;
  std::vector<Group> groups_;
  std::deque<Context> contexts_;
  size_t floor_ = 0;          // contexts below belong to an outer expansion
  bool is_confined_ = false;  // an argument is expanded by itself, and does not read on in the text
  uint32_t line_ = 1;         // of the last token of the text
};

/// The value of an #if's expression: all names are expanded, and those that are left are 0. Throws Error.
int64_t evaluate(const std::vector<Token>& tokens, uint32_t line, const std::string& unit);

/// The value of an integer literal, and whether it has u and l. False if it is not one.
bool integer_value(std::string_view text, uint64_t& value, bool& is_unsigned, bool& is_long);

}  // namespace backplane::driver::spirv
