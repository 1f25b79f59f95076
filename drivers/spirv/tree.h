// drivers/spirv/tree.h: a unit of the dialect as a typed tree: what parse() makes, and what emit() and any other printer reads.
//
// All of C's conversions are written out: the operands of an operator have its type, an argument its parameter's, a condition type boolean.
// What the preprocessor did is done, constants are folded. Nodes live as long as their Unit.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spirv.h"

namespace backplane::driver::spirv {

class Names;

/// boolean: of a comparison; it exists in expressions alone, and is the i32 0 or 1 wherever it is stored or computed with.
enum class Kind : uint8_t { none, boolean, i8, u8, i16, u16, i32, u32, i64, u64, f32, f64, pointer, array, structure };

/// Where memory is. of_private: variables of an item.
enum class Space : uint8_t { of_private, global, local };

struct Record;

/// Equal types are one object: compare addresses.
struct Type {
  Kind kind = Kind::none;
  Space space = Space::of_private;  // of a pointer: what it points to
  bool points_to_const = false;     // of a pointer
  const Type* element = nullptr;    // of a pointer or an array
  uint64_t count = 0;               // of an array; 0: as many as its initializer has
  const Record* record = nullptr;   // of a structure

  bool is_integer() const { return kind >= Kind::i8 && kind <= Kind::u64; }
  bool is_real() const { return kind == Kind::f32 || kind == Kind::f64; }
  bool is_number() const { return kind >= Kind::i8 && kind <= Kind::f64; }
  bool is_scalar() const { return kind >= Kind::boolean && kind <= Kind::pointer; }
  bool is_pointer() const { return kind == Kind::pointer; }
  bool is_signed() const { return kind == Kind::i8 || kind == Kind::i16 || kind == Kind::i32 || kind == Kind::i64; }
  uint64_t size() const;   // bytes, as in C
  uint64_t align() const;  // bytes
};

struct Member {
  std::string_view name;
  const Type* type = nullptr;
  uint64_t offset = 0;  // bytes
};

struct Record {
  std::string_view name;  // of the typedef or the tag; may be ""
  std::vector<Member> members;
  uint64_t size = 0, align = 1;
  bool is_complete = false;
};

/// In the language as the dialect writes it: "BP_GLOBAL const f32*".
std::string name_of(const Type& type);

/// Makes types, each once.
class Types {
 public:
  Types();
  const Type* scalar(Kind kind) const { return scalars_[static_cast<size_t>(kind)]; }
  const Type* pointer(const Type* to, Space space, bool to_const);
  const Type* array(const Type* of, uint64_t count);
  const Type* structure(const Record* record);
  Record& record() { return records_.emplace_back(); }
  const std::deque<Record>& records() const { return records_; }

 private:
  const Type* find_or_add(const Type& type);
  std::deque<Type> types_;
  std::deque<Record> records_;
  const Type* scalars_[static_cast<size_t>(Kind::f64) + 1] = {};
};

struct Expression;
struct Statement;
struct Function;

struct Variable {
  std::string_view name;
  const Type* type = nullptr;
  uint32_t line = 0;
  enum class Role : uint8_t { automatic, parameter, local_array, table, value } role = Role::automatic;
  // table: a constant of the unit. value: the last parameter of a kernel, bp_arg
  bool is_const = false;
  bool is_assigned = false;           // after its declaration
  const Expression* value = nullptr;  // of a table
};

/// What the language of a target supplies (builtins.h has their names and types).
struct Builtin;

enum class Operator : uint8_t {
  // places, which have an address: as operands they mean what is stored there
  variable,
  member,   // a.member; a is a place or a value
  element,  // a[b]: a is the place of an array, or a pointer
  // values
  constant,
  decay,    // a, the place of an array, as a pointer to its first element
  address,  // &a
  convert,  // of numbers, booleans and pointers, to the type of the node
  negate,   // - ~ !
  complement,
  logical_not,
  add,
  subtract,
  multiply,
  divide,
  remainder,
  shift_left,
  shift_right,
  bit_and,
  bit_or,
  bit_xor,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,  // boolean, of numbers or pointers
  logical_and,
  logical_or,
  conditional,  // a ? b : c
  move,         // a + b of a pointer and an i32, u32, i64 or u64
  distance,     // a - b of pointers, an i64
  comma,
  assign,   // a = b; the value is a's
  update,   // a = a by b, computed in the type of b, where `by` is add to bit_xor, or move; is_postfix: the value is that before
  call,     // function(arguments)
  builtin,  // word(arguments)
  list,     // of an initializer: {arguments}
};

struct Expression {
  Operator op = Operator::constant;
  Operator by = Operator::add;  // of update
  bool is_postfix = false;
  uint32_t line = 0;
  const Type* type = nullptr;
  Expression *a = nullptr, *b = nullptr, *c = nullptr;
  uint64_t integer = 0;  // of a constant: an integer's bits, extended by its sign
  double real = 0;       // of a constant f32 or f64
  Variable* variable = nullptr;
  uint32_t member = 0;
  const Function* function = nullptr;
  const Builtin* word = nullptr;
  std::vector<Expression*> arguments;
};

struct Case {
  std::vector<uint64_t> values;  // of the labels in front; their bits, extended
  bool is_default = false;
  std::vector<Statement*> body;
};

struct Statement {
  enum class Kind : uint8_t {
    block,       // body
    expression,  // a
    declare,     // variable, a: its initializer or NULL
    branch,      // if (a) first else second
    loop_for,    // for (body; a; b) first; body: declarations or an expression
    loop_while,  // while (a) first
    loop_do,     // do first while (a)
    choice,      // switch (a) cases
    leave,       // break
    next,        // continue
    give,        // return a
  } kind = Kind::block;
  bool unroll = false;    // of a loop
  bool is_group = false;  // a block without a scope: the declarations of one line
  uint32_t line = 0;
  Expression *a = nullptr, *b = nullptr;
  Statement *first = nullptr, *second = nullptr;
  Variable* variable = nullptr;
  std::vector<Statement*> body;
  std::vector<Case> cases;
};

struct Function {
  std::string_view name;
  uint32_t line = 0;
  bool is_kernel = false;
  const Type* result = nullptr;
  std::vector<Variable*> parameters;  // of a kernel: pointers, then the value
  Statement* body = nullptr;          // NULL: declared, never defined
};

/// A text as parse() understood it.
struct Unit {
  Unit();
  ~Unit();
  Unit(Unit&&) noexcept;

  std::string name;    // for messages
  uint32_t group = 1;  // BP_GROUP of the text
  Types types;
  std::deque<Function> functions;  // as they are written; a function is called below its declaration only
  std::deque<Variable*> tables;
  std::vector<const Record*> records;  // in an order in which each can be declared

  // Owned.
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::deque<Variable> variables;
  std::unique_ptr<Names> names;
};

/// Reads a complete text. What the facts say decides which words the prelude defines. Throws Error.
Unit parse(const std::string& source, const Facts& facts, const Options& options = {});

/// SPIR-V of all kernels of a unit. Throws Error.
Module emit(const Unit& unit, const Facts& facts, const Options& options = {});

}  // namespace backplane::driver::spirv
