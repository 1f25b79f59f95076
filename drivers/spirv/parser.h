// drivers/spirv/parser.h: reads tokens into a typed tree, in one pass; what is wrong is refused with the line.
#pragma once

#include <string>
#include <vector>

#include "builtins.h"
#include "keywords.h"
#include "preprocessor.h"
#include "tree.h"

namespace backplane::driver::spirv {

/// What a name means in a scope.
struct Binding {
  enum class Kind : uint8_t { variable, function, type, tag, constant } kind;
  Symbol* symbol;
  Binding* outer;  // what the name means outside
  Variable* variable = nullptr;
  Function* function = nullptr;
  const Type* type = nullptr;
  int64_t number = 0;
  bool is_const = false;  // of a type
};

/// Makes nodes: conversions, arithmetic and constants as in C.
class Builder {
 public:
  Builder(Unit& unit, const std::string& file) : unit_(unit), file_(file) {}

  [[noreturn]] void fail(uint32_t line, const std::string& message) const { throw Error(file_, line, message); }
  const Type* scalar(Kind kind) const { return unit_.types.scalar(kind); }

  Expression* node(Operator op, const Type* type, uint32_t line, Expression* a = nullptr, Expression* b = nullptr, Expression* c = nullptr);
  Expression* constant(Kind kind, uint64_t bits, uint32_t line);
  Expression* constant(Kind kind, double value, uint32_t line);

  /// An expression as a value: arrays become pointers.
  Expression* value(Expression* e);
  Expression* promoted(Expression* e);
  Expression* condition(Expression* e);
  /// Implicitly, as an assignment does; what: for the message.
  Expression* converted(Expression* e, const Type* type, const char* what);
  Expression* cast(Expression* e, const Type* type);
  void balance(Expression*& a, Expression*& b, const char* what);
  Expression* binary(uint32_t code, Expression* a, Expression* b, uint32_t line);
  Expression* unary(uint32_t code, Expression* a, uint32_t line);
  Expression* conditional(Expression* a, Expression* b, Expression* c, uint32_t line);
  Expression* assign(Expression* a, Expression* b, uint32_t line);
  Expression* update(uint32_t code, Expression* a, Expression* b, bool is_postfix, uint32_t line);
  Expression* element(Expression* a, Expression* b, uint32_t line);
  Expression* member(Expression* a, std::string_view name, uint32_t line);
  Expression* call(const Function& function, std::vector<Expression*> arguments, uint32_t line);
  Expression* call(const Builtin& word, std::vector<Expression*> arguments, uint32_t line);

 protected:
  Unit& unit_;

 private:
  Expression* convert(Expression* e, const Type* type);
  Expression* fold(Operator op, Expression* a, Expression* b, const Type* type, uint32_t line);
  Expression* move(Expression* pointer, Expression* by, bool is_back, uint32_t line);
  void must_be_place(const Expression* e, const char* what);
  void mark_assigned(Expression* place, uint32_t line);
  const std::string& file_;
};

/// Of a place: where it lies, and whether it may be written.
Space space_of(const Expression& place);
bool is_place(const Expression& e);

/// Macros that are defined in front of a text: what the prelude asks of the facts (prelude.cpp).
std::vector<std::pair<std::string, std::string>> defined_words(const Facts& facts, const Options& options);

class Parser : Builder {
 public:
  Parser(Unit& unit, Preprocessor& preprocessor);
  void unit();

 private:
  struct Specifiers {
    const Type* type = nullptr;
    Space space = Space::of_private;
    bool is_const = false, is_typedef = false, is_kernel = false;
  };
  struct Declarator {
    const Type* type = nullptr;
    Symbol* name = nullptr;
    uint32_t line = 0;
    bool is_const = false;  // itself, not what it points to
    bool is_function = false;
    std::vector<Variable*> parameters;
  };

  // parser.cpp: tokens, names, declarations
  [[noreturn]] void unexpected(const char* wanted);
  void advance();
  bool at(const char* code) const { return token_.is(code); }
  bool at(Keyword keyword) const { return token_.kind == Token::Kind::name && token_.symbol->keyword == keyword; }
  bool take(const char* code);
  bool take(Keyword keyword);
  void expect(const char* code);
  Symbol& expect_name();
  Binding* lookup(const Symbol& symbol) const { return symbol.binding; }
  Binding& bind(Symbol& symbol, Binding::Kind kind);
  size_t open_scope() const { return scope_.size(); }
  void close_scope(size_t begin);
  bool begins_type() const;

  Specifiers specifiers();
  const Type* word_type();
  const Type* record();
  const Type* enumeration();
  Declarator declarator(const Specifiers& specifiers, bool is_abstract = false);
  const Type* array_suffix(const Type* of, bool is_parameter);
  void parameters(Declarator& out);
  const Type* type_name();
  uint64_t constant_size(const char* what);
  void external();
  void function(const Specifiers& specifiers, Declarator& head);
  void check_kernel(const Function& kernel);
  Variable& variable(const Declarator& from, const Specifiers& specifiers, Variable::Role role);
  Expression* initializer(const Type*& type);

  // statements.cpp
  Statement& statement_node(Statement::Kind kind);
  Statement* statement();
  Statement* block();
  Statement* declaration();
  Statement* loop();
  Statement* choice();
  Statement* body_of_loop();

  // expressions.cpp
  Expression* expression();
  Expression* assignment();
  Expression* choice_expression();
  Expression* binary_expression(int least);
  Expression* unary_expression();
  Expression* postfix_of(Expression* out);
  Expression* primary();
  Expression* number();
  std::vector<Expression*> arguments();

  Preprocessor& preprocessor_;
  Token token_, ahead_;
  bool has_ahead_ = false;
  const Token& peek();
  std::deque<Binding> bindings_;
  std::vector<Binding*> scope_;
  Function* current_ = nullptr;
  size_t depth_ = 0;  // of blocks in the function
  size_t loops_ = 0;  // around the statement
  size_t choices_ = 0;
  size_t nesting_ = 0;  // of expressions and statements: a limit for the stack
};

}  // namespace backplane::driver::spirv
