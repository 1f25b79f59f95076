// drivers/spirv/print_c.cpp: one function each for types, expressions, statements and functions.
#include "print_c.h"

#include <cstdio>
#include <set>
#include <unordered_map>

#include "builtins.h"

namespace backplane::driver::spirv {
namespace {

const char* sign_of(Operator op) {
  switch (op) {
    case Operator::add:
    case Operator::move:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::remainder:
      return "%";
    case Operator::shift_left:
      return "<<";
    case Operator::shift_right:
      return ">>";
    case Operator::bit_and:
      return "&";
    case Operator::bit_or:
      return "|";
    case Operator::bit_xor:
      return "^";
    case Operator::less:
      return "<";
    case Operator::less_equal:
      return "<=";
    case Operator::greater:
      return ">";
    case Operator::greater_equal:
      return ">=";
    case Operator::equal:
      return "==";
    case Operator::not_equal:
      return "!=";
    case Operator::logical_and:
      return "&&";
    case Operator::logical_or:
      return "||";
    default:
      return nullptr;
  }
}

class Printer {
 public:
  explicit Printer(const Unit& unit) : unit_(unit) {}

  std::string run() {
    for (const Function& function : unit_.functions) {
      if (function.is_kernel && function.body) use(function);
    }
    for (const Record* record : unit_.records) structure(*record);
    for (const Variable* table : unit_.tables) {
      out_ += "static const " + declared(*table->type, std::string(table->name)) + " = " + text(*table->value) + ";\n";
    }
    for (const Function& one : unit_.functions) {
      if (used_.contains(&one) && !one.is_kernel) out_ += head(one) + ";\n";
    }
    for (const Function& one : unit_.functions) {
      if (!used_.contains(&one)) continue;
      out_ += head(one) + " ";
      block(*one.body);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(uint32_t line, const std::string& message) const { throw Error(unit_.name, line, message); }

  // ---- what kernels use

  void use(const Function& function) {
    if (!function.body) fail(function.line, "the function " + std::string(function.name) + " is declared and not defined");
    if (used_.insert(&function).second) use(*function.body);
  }
  void use(const Statement& s) {
    for (const Expression* e : {s.a, s.b}) {
      if (e) use(*e);
    }
    for (const Statement* one : {s.first, s.second}) {
      if (one) use(*one);
    }
    for (const Statement* one : s.body) use(*one);
    for (const Case& one : s.cases) {
      for (const Statement* inner : one.body) use(*inner);
    }
  }
  void use(const Expression& e) {
    if (e.op == Operator::call) use(*e.function);
    for (const Expression* one : {e.a, e.b, e.c}) {
      if (one) use(*one);
    }
    for (const Expression* one : e.arguments) use(*one);
  }

  // ---- types

  void structure(const Record& record) {
    const std::string name = "bp_struct_" + std::to_string(names_.size());
    std::string members;
    for (const Member& member : record.members) members += "  " + declared(*member.type, std::string(member.name)) + ";\n";
    out_ += "typedef struct {\n" + members + "} " + name + ";\n";
    names_[&record] = name;
  }

  std::string type(const Type& of) const {
    if (of.kind == Kind::structure) return names_.at(of.record);
    if (of.kind != Kind::pointer) return name_of(of);
    return std::string(of.space == Space::global ? "BP_GLOBAL " : "BP_LOCAL ") + (of.points_to_const ? "const " : "") + type(*of.element) +
           "*";
  }
  std::string declared(const Type& of, std::string name) const {
    if (of.kind != Kind::array) return type(of) + " " + name;
    return declared(*of.element, name + "[" + std::to_string(of.count) + "]");
  }

  // ---- expressions

  std::string constant(const Expression& e) const {
    const Kind kind = e.type->kind;
    if (e.type->is_real()) {
      char digits[40];
      std::snprintf(digits, sizeof digits, "%a", e.real);
      return std::string("(") + digits + (kind == Kind::f32 ? "f)" : ")");
    }
    const auto number = static_cast<int64_t>(e.integer);
    if (kind == Kind::u32) return std::to_string(e.integer) + "u";
    if (kind == Kind::u64) return "((u64)" + std::to_string(e.integer) + "u)";
    if (kind == Kind::i64 && number == INT64_MIN) return "((i64)-9223372036854775807 - 1)";
    if (kind == Kind::i32 && number == INT32_MIN) return "(-2147483647 - 1)";
    const std::string digits = "(" + std::to_string(number) + ")";
    return kind == Kind::i32 || kind == Kind::boolean ? digits : "((" + name_of(*e.type) + ")" + digits + ")";
  }

  std::string list(const std::vector<Expression*>& all) const {
    std::string out;
    for (const Expression* one : all) out += (out.empty() ? "" : ", ") + text(*one);
    return out;
  }

  std::string word(const Expression& e) const {
    if (e.word->dialect.empty()) fail(e.line, "the word " + std::string(e.word->name) + ", which the dialect does not have");
    if (e.word->word == Word::item) return "BP_ITEM";
    return std::string(e.word->dialect) + "(" + list(e.arguments) + ")";
  }

  std::string text(const Expression& e) const {
    switch (e.op) {
      case Operator::variable:
        return std::string(e.variable->name);
      case Operator::member:
        return text(*e.a) + "." + std::string(e.a->type->record->members[e.member].name);
      case Operator::element:
        return text(*e.a) + "[" + text(*e.b) + "]";
      case Operator::constant:
        return constant(e);
      case Operator::decay:
        return text(*e.a);
      case Operator::address:
        return "(&" + text(*e.a) + ")";
      case Operator::convert:
        if (e.type->kind == Kind::boolean) return "(" + text(*e.a) + " != 0)";
        return "((" + type(*e.type) + ")" + text(*e.a) + ")";
      case Operator::negate:
        return "(-" + text(*e.a) + ")";
      case Operator::complement:
        return "(~" + text(*e.a) + ")";
      case Operator::logical_not:
        return "(!" + text(*e.a) + ")";
      case Operator::conditional:
        return "(" + text(*e.a) + " ? " + text(*e.b) + " : " + text(*e.c) + ")";
      case Operator::distance:
        return "((i64)(" + text(*e.a) + " - " + text(*e.b) + "))";
      case Operator::comma:
        return "(" + text(*e.a) + ", " + text(*e.b) + ")";
      case Operator::assign:
        return "(" + text(*e.a) + " = " + text(*e.b) + ")";
      case Operator::update:
        if (e.is_postfix) {
          const bool is_up = e.by == Operator::add || (e.by == Operator::move && static_cast<int64_t>(e.b->integer) > 0);
          return "(" + text(*e.a) + (is_up ? "++)" : "--)");
        }
        return "(" + text(*e.a) + " " + sign_of(e.by) + "= " + text(*e.b) + ")";
      case Operator::call:
        return std::string(e.function->name) + "(" + list(e.arguments) + ")";
      case Operator::builtin:
        return word(e);
      case Operator::list:
        return "{" + list(e.arguments) + "}";
      default:
        return "(" + text(*e.a) + " " + sign_of(e.op) + " " + text(*e.b) + ")";
    }
  }

  // ---- statements

  void line(const std::string& text) { out_ += std::string(2 * depth_, ' ') + text + "\n"; }

  void block(const Statement& s) {
    out_ += "{\n";
    ++depth_;
    statement(s);
    --depth_;
    line("}");
  }
  /// A statement within braces, behind a head.
  void under(const std::string& head, const Statement& s) {
    out_ += std::string(2 * depth_, ' ') + head + " ";
    block(s);
  }

  void declare(const Statement& s) {
    const Variable& variable = *s.variable;
    const std::string name(variable.name);
    const Type& of = *variable.type;
    if (variable.role == Variable::Role::local_array) {
      std::string element = type(*of.element);
      if (of.element->kind == Kind::array) {
        element = "bp_row_" + name;
        line("typedef " + declared(*of.element, element) + ";");
      }
      return line("BP_LOCAL_ARRAY(" + element + ", " + name + ", " + std::to_string(of.count) + ");");
    }
    line(declared(of, name) + (s.a ? " = " + text(*s.a) : "") + ";");
  }

  void statement(const Statement& s) {
    const std::string unroll = s.unroll ? "BP_UNROLL " : "";
    switch (s.kind) {
      case Statement::Kind::block:
        for (const Statement* one : s.body) {
          if (one->kind == Statement::Kind::block && !one->is_group) {
            under("", *one);
          } else {
            statement(*one);
          }
        }
        return;
      case Statement::Kind::expression:
        return line(text(*s.a) + ";");
      case Statement::Kind::declare:
        return declare(s);
      case Statement::Kind::branch:
        under("if (" + text(*s.a) + ")", *s.first);
        if (s.second) under("else", *s.second);
        return;
      case Statement::Kind::loop_for:
        line("{");
        ++depth_;
        for (const Statement* one : s.body) statement(*one);
        under(unroll + "for (; " + (s.a ? text(*s.a) : "") + "; " + (s.b ? text(*s.b) : "") + ")", *s.first);
        --depth_;
        return line("}");
      case Statement::Kind::loop_while:
        return under("while (" + text(*s.a) + ")", *s.first);
      case Statement::Kind::loop_do:
        under("do", *s.first);
        return line("while (" + text(*s.a) + ");");
      case Statement::Kind::choice:
        line("switch (" + text(*s.a) + ") {");
        for (const Case& one : s.cases) {
          for (const uint64_t bits : one.values) line("case " + std::to_string(static_cast<int64_t>(bits)) + ":");
          if (one.is_default) line("default:");
          line(";");
          for (const Statement* inner : one.body) {
            if (inner->kind == Statement::Kind::block && !inner->is_group) {
              under("", *inner);
            } else {
              statement(*inner);
            }
          }
        }
        return line("}");
      case Statement::Kind::leave:
        return line("break;");
      case Statement::Kind::next:
        return line("continue;");
      case Statement::Kind::give:
        return line(s.a ? "return " + text(*s.a) + ";" : "return;");
    }
  }

  // ---- functions

  std::string head(const Function& function) const {
    const std::string name(function.name);
    std::string parameters;
    for (const Variable* one : function.parameters) {
      if (one->role == Variable::Role::value) continue;
      const bool restrict = function.is_kernel;
      parameters += (parameters.empty() ? "" : ", ") + type(*one->type) + (restrict ? " BP_RESTRICT " : " ") + std::string(one->name);
    }
    if (!function.is_kernel) return "BP_FN " + type(*function.result) + " " + name + "(" + (parameters.empty() ? "void" : parameters) + ")";
    if (function.parameters.back()->name != "bp_arg") fail(function.line, "a kernel whose values are not called bp_arg");
    const std::string count = std::to_string(function.parameters.size() - 1);
    return "BP_KERNEL(" + name + ", " + count + ", " + type(*function.parameters.back()->type) + ", " + parameters + ")";
  }

  const Unit& unit_;
  std::string out_;
  size_t depth_ = 0;
  std::set<const Function*> used_;
  std::unordered_map<const Record*, std::string> names_;
};

}  // namespace

Facts facts_of_printed() {
  Facts out;
  out.memory_8 = out.memory_16 = out.float64 = true;
  out.atomic_i64 = out.atomic_add_f32 = true;
  out.exact_division = out.exact_sqrt = out.exact_fma = out.exact_fma64 = true;
  return out;
}

std::string print_c(const Unit& unit) { return Printer(unit).run(); }

}  // namespace backplane::driver::spirv
