// drivers/spirv/values.cpp: expressions: variables, operators, choices, assignments.
#include "emitter.h"

namespace backplane::driver::spirv {
namespace {

bool is_stored(const Expression& e) {
  if (e.op == Operator::member) return is_stored(*e.a);
  return e.op == Operator::variable || e.op == Operator::element;
}

}  // namespace

uint32_t Emitter::instruction(Op op, uint32_t type, const Words& operands) {
  const uint32_t out = assembler_.id();
  Words& body = frame_.body;
  body.push_back(static_cast<uint32_t>(operands.size() + 3) << 16 | op);
  body.push_back(type);
  body.push_back(out);
  body.insert(body.end(), operands.begin(), operands.end());
  return out;
}

uint32_t Emitter::inexact(Op op, uint32_t type, const Words& operands) {
  const uint32_t out = instruction(op, type, operands);
  if (is_vulkan() && !options_.fast_math) put(assembler_.annotations, OpDecorate, {out, DecorationNoContraction});
  return out;
}

Value Emitter::value(const Expression& e) {
  switch (e.op) {
    case Operator::variable: {
      const auto slot = frame_.slots.find(e.variable);
      if (slot != frame_.slots.end()) {
        if (slot->second.kind == Slot::Kind::value) return slot->second.value;
        return {load(slot->second.place), slot->second.value.base};
      }
      if (e.variable->role == Variable::Role::table && e.type->is_scalar()) return value(*e.variable->value);
      return {load(place(e))};
    }
    case Operator::member: {
      const Expression* root = &e;
      while (root->op == Operator::member) root = root->a;
      const auto slot = root->op == Operator::variable ? frame_.slots.find(root->variable) : frame_.slots.end();
      if (is_stored(e) && (slot == frame_.slots.end() || slot->second.kind == Slot::Kind::place)) return {load(place(e))};
      const uint32_t cell = cell_type(*e.type, Layout::plain);
      const uint32_t one = instruction(OpCompositeExtract, cell, {value(*e.a).id, e.member});
      return {e.type->is_scalar() ? from_cell(one, *e.type, cell) : one};
    }
    case Operator::element:
      return {load(place(e))};
    case Operator::constant:
      return {constant(*e.type, e.integer, e.real)};
    case Operator::decay:
    case Operator::address:
      return address_of(place(*e.a), e.line);
    case Operator::convert:
      return convert(e);
    case Operator::negate: {
      const uint32_t a = value(*e.a).id;
      return {e.type->is_real() ? inexact(OpFNegate, register_type(*e.type), {a}) : instruction(OpSNegate, register_type(*e.type), {a})};
    }
    case Operator::complement:
      return {instruction(OpNot, register_type(*e.type), {value(*e.a).id})};
    case Operator::logical_not:
      return {instruction(OpLogicalNot, bool_type(), {value(*e.a).id})};
    case Operator::less:
    case Operator::less_equal:
    case Operator::greater:
    case Operator::greater_equal:
    case Operator::equal:
    case Operator::not_equal:
      return {compare(e)};
    case Operator::logical_and:
    case Operator::logical_or:
      return {logical(e)};
    case Operator::conditional:
      return choose(e);
    case Operator::move: {
      const Value pointer = value(*e.a);
      return move(pointer, *e.type, value(*e.b).id, *e.b->type);
    }
    case Operator::distance: {
      const Value a = value(*e.a), b = value(*e.b);
      const uint32_t wide = int_type(64);
      if (a.base || b.base) {
        if (a.base != b.base) fail(e.line, "a difference of pointers into two local arrays");
        return {sign_extended(instruction(OpISub, int_type(32), {a.id, b.id}))};
      }
      const auto number = [&](const Value& one) { return is_vulkan() ? one.id : instruction(OpConvertPtrToU, wide, {one.id}); };
      const uint32_t bytes = instruction(OpISub, wide, {number(a), number(b)});
      return {instruction(OpSDiv, wide, {bytes, int_constant(64, e.a->type->element->size())})};
    }
    case Operator::comma:
      value(*e.a);
      return value(*e.b);
    case Operator::assign: {
      const Place to = place(*e.a);
      const Value what = value(*e.b);
      if (e.a->op == Operator::variable && what.base != frame_.slots[e.a->variable].value.base) {
        fail(e.line, "a pointer to local memory that points into another array than before");
      }
      store(to, what.id);
      return what;
    }
    case Operator::update:
      return update(e);
    case Operator::call: {
      Words arguments;
      std::vector<const Variable*> bases;
      for (const Expression* one : e.arguments) {
        const Value argument = value(*one);
        arguments.push_back(argument.id);
        if (one->type->is_pointer() && one->type->space == Space::local) bases.push_back(argument.base);
      }
      return call(*e.function, arguments, bases, e.line);
    }
    case Operator::builtin:
      return word(e);
    case Operator::list:
      return {composite(e)};
    default: {
      const uint32_t a = value(*e.a).id;
      const uint32_t b = value(*e.b).id;
      return {binary(e.op, a, b, *e.type, e.line)};
    }
  }
}

uint32_t Emitter::binary(Operator op, uint32_t a, uint32_t b, const Type& type, uint32_t line) {
  const bool is_real = type.is_real(), is_signed = type.is_signed();
  const uint32_t out = register_type(type);
  switch (op) {
    case Operator::add:
      return is_real ? inexact(OpFAdd, out, {a, b}) : instruction(OpIAdd, out, {a, b});
    case Operator::subtract:
      return is_real ? inexact(OpFSub, out, {a, b}) : instruction(OpISub, out, {a, b});
    case Operator::multiply:
      return is_real ? inexact(OpFMul, out, {a, b}) : instruction(OpIMul, out, {a, b});
    case Operator::divide:
      return is_real ? quotient(a, b, type, line) : instruction(is_signed ? OpSDiv : OpUDiv, out, {a, b});
    case Operator::remainder: {
      if (!is_signed) return instruction(OpUMod, out, {a, b});
      if (!is_vulkan()) return instruction(OpSRem, out, {a, b});
      // Vulkan leaves the remainder of negative numbers open.
      const uint32_t whole = instruction(OpIMul, out, {instruction(OpSDiv, out, {a, b}), b});
      return instruction(OpISub, out, {a, whole});
    }
    case Operator::shift_left:
      return instruction(OpShiftLeftLogical, out, {a, b});
    case Operator::shift_right:
      return instruction(is_signed ? OpShiftRightArithmetic : OpShiftRightLogical, out, {a, b});
    case Operator::bit_and:
      return instruction(OpBitwiseAnd, out, {a, b});
    case Operator::bit_or:
      return instruction(OpBitwiseOr, out, {a, b});
    case Operator::bit_xor:
      return instruction(OpBitwiseXor, out, {a, b});
    default:
      fail(line, "an operator that is not one of numbers");
  }
}

uint32_t Emitter::quotient(uint32_t a, uint32_t b, const Type& type, uint32_t line) {
  if (type.kind == Kind::f32 && !facts_.exact_division && !options_.fast_math) return composed("bp_quotient_", {a, b}, line);
  return inexact(OpFDiv, register_type(type), {a, b});
}

uint32_t Emitter::compare(const Expression& e) {
  const Type& type = *e.a->type;
  uint32_t a = value(*e.a).id;
  const Value second = value(*e.b);
  uint32_t b = second.id;
  if (type.is_pointer() && !is_vulkan()) {
    a = instruction(OpConvertPtrToU, int_type(64), {a});
    b = instruction(OpConvertPtrToU, int_type(64), {b});
  }
  const bool is_signed = type.is_signed() || (type.is_pointer() && type.space == Space::local && is_vulkan());
  const auto pick = [&](Op real, Op of_signed, Op of_unsigned) { return type.is_real() ? real : is_signed ? of_signed : of_unsigned; };
  Op op = OpIEqual;
  switch (e.op) {
    case Operator::less:
      op = pick(OpFOrdLessThan, OpSLessThan, OpULessThan);
      break;
    case Operator::less_equal:
      op = pick(OpFOrdLessThanEqual, OpSLessThanEqual, OpULessThanEqual);
      break;
    case Operator::greater:
      op = pick(OpFOrdGreaterThan, OpSGreaterThan, OpUGreaterThan);
      break;
    case Operator::greater_equal:
      op = pick(OpFOrdGreaterThanEqual, OpSGreaterThanEqual, OpUGreaterThanEqual);
      break;
    case Operator::equal:
      op = pick(OpFOrdEqual, OpIEqual, OpIEqual);
      break;
    default:
      op = pick(OpFUnordNotEqual, OpINotEqual, OpINotEqual);
      break;
  }
  return instruction(op, bool_type(), {a, b});
}

/// Whether an expression may be computed where C does not: without effects, without memory, cheap.
bool Emitter::is_simple(const Expression& e, int& budget) const {
  if (--budget < 0) return false;
  switch (e.op) {
    case Operator::constant:
      return true;
    case Operator::variable:
      return e.type->is_scalar();
    case Operator::member: {
      const Expression* root = e.a;
      while (root->op == Operator::member) root = root->a;
      return e.type->is_scalar() && root->op == Operator::variable && root->variable->role != Variable::Role::local_array;
    }
    case Operator::divide:
    case Operator::remainder:
      if (e.type->is_real()) {
        if (!facts_.exact_division && !options_.fast_math) return false;
      } else if (e.b->op != Operator::constant || e.b->integer == 0 || static_cast<int64_t>(e.b->integer) == -1) {
        return false;
      }
      break;
    case Operator::builtin:
      if (e.word->word < Word::bits || e.word->word > Word::copy_sign || e.word->word == Word::square_root || e.word->word == Word::fused) {
        return false;
      }
      for (const Expression* one : e.arguments) {
        if (!is_simple(*one, budget)) return false;
      }
      return true;
    case Operator::element:
    case Operator::decay:
    case Operator::address:
    case Operator::comma:
    case Operator::assign:
    case Operator::update:
    case Operator::call:
    case Operator::list:
      return false;
    default:
      break;
  }
  for (const Expression* one : {e.a, e.b, e.c}) {
    if (one && !is_simple(*one, budget)) return false;
  }
  return true;
}

uint32_t Emitter::logical(const Expression& e) {
  const bool is_and = e.op == Operator::logical_and;
  const uint32_t a = value(*e.a).id;
  int budget = 16;
  if (is_simple(*e.b, budget)) return instruction(is_and ? OpLogicalAnd : OpLogicalOr, bool_type(), {a, value(*e.b).id});
  const uint32_t from = frame_.label, other = assembler_.id(), merge = assembler_.id();
  put(frame_.body, OpSelectionMerge, {merge, 0});
  branch_to(a, is_and ? other : merge, is_and ? merge : other);
  label(other);
  const uint32_t b = value(*e.b).id;
  const uint32_t from_other = frame_.label;
  jump(merge);
  label(merge);
  const uint32_t skipped = assembler_.constant(is_and ? OpConstantFalse : OpConstantTrue, {bool_type()});
  return instruction(OpPhi, bool_type(), {skipped, from, b, from_other});
}

Value Emitter::choose(const Expression& e) {
  const uint32_t condition = value(*e.a).id;
  const uint32_t type = register_type(*e.type);
  const auto same_base = [&](const Value& b, const Value& c) {
    if (b.base != c.base) fail(e.line, "a choice between pointers into two local arrays");
  };
  int budget = 24;
  if (e.type->is_scalar() && is_simple(*e.b, budget) && is_simple(*e.c, budget)) {
    const Value b = value(*e.b), c = value(*e.c);
    same_base(b, c);
    return {instruction(OpSelect, type, {condition, b.id, c.id}), b.base};
  }
  const uint32_t yes = assembler_.id(), no = assembler_.id(), merge = assembler_.id();
  put(frame_.body, OpSelectionMerge, {merge, 0});
  branch_to(condition, yes, no);
  label(yes);
  const Value b = value(*e.b);
  const uint32_t from_yes = frame_.label;
  jump(merge);
  label(no);
  const Value c = value(*e.c);
  const uint32_t from_no = frame_.label;
  jump(merge);
  label(merge);
  if (e.type->kind == Kind::none) return {};
  same_base(b, c);
  return {instruction(OpPhi, type, {b.id, from_yes, c.id, from_no}), b.base};
}

Value Emitter::update(const Expression& e) {
  const Place at = place(*e.a);
  const uint32_t by = value(*e.b).id;
  Value before{load(at)};
  if (e.a->type->is_pointer()) {
    if (e.a->op == Operator::variable) before.base = frame_.slots[e.a->variable].value.base;
    const Value after = move(before, *e.a->type, by, *e.b->type);
    store(at, after.id);
    return e.is_postfix ? before : after;
  }
  const Type& computed = *e.b->type;
  const uint32_t result = binary(e.by, convert_number(before.id, *e.a->type, computed), by, computed, e.line);
  const uint32_t after = convert_number(result, computed, *e.a->type);
  store(at, after);
  return e.is_postfix ? before : Value{after};
}

/// A list of values as a value.
uint32_t Emitter::composite(const Expression& list) {
  Words members;
  const Type& type = *list.type;
  const bool is_array = type.kind == Kind::array;
  const size_t count = is_array ? type.count : type.record->members.size();
  for (size_t i = 0; i < count; ++i) {
    const Type& member = is_array ? *type.element : *type.record->members[i].type;
    const uint32_t cell = cell_type(member, Layout::plain);
    if (i >= list.arguments.size()) {
      members.push_back(null(cell));
      continue;
    }
    const uint32_t one = value(*list.arguments[i]).id;
    members.push_back(member.is_scalar() ? to_cell(one, member, cell) : one);
  }
  return instruction(OpCompositeConstruct, cell_type(type, Layout::plain), members);
}

}  // namespace backplane::driver::spirv
