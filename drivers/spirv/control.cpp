// drivers/spirv/control.cpp: statements as structured control flow.
#include "emitter.h"

namespace backplane::driver::spirv {

void Emitter::label(uint32_t id) {
  put(frame_.body, OpLabel, {id});
  frame_.label = id;
  frame_.is_closed = false;
}

void Emitter::jump(uint32_t to) {
  put(frame_.body, OpBranch, {to});
  frame_.is_closed = true;
}

void Emitter::branch_to(uint32_t condition, uint32_t yes, uint32_t no) {
  put(frame_.body, OpBranchConditional, {condition, yes, no});
  frame_.is_closed = true;
}

uint32_t Emitter::private_variable(uint32_t type) {
  const uint32_t out = assembler_.id();
  put(frame_.variables, OpVariable, {pointer_type(type, StorageFunction), out, StorageFunction});
  return out;
}

void Emitter::statement(const Statement& s) {
  if (frame_.is_closed) return;  // behind a break, a continue or a return
  line_ = s.line;
  switch (s.kind) {
    case Statement::Kind::block:
      for (const Statement* one : s.body) statement(*one);
      return;
    case Statement::Kind::expression:
      value(*s.a);
      return;
    case Statement::Kind::declare:
      return declare(s);
    case Statement::Kind::branch:
      return branch(s);
    case Statement::Kind::loop_for:
    case Statement::Kind::loop_while:
    case Statement::Kind::loop_do:
      return loop(s);
    case Statement::Kind::choice:
      return choice(s);
    case Statement::Kind::leave:
      frame_.exits.back().has_break = true;
      return jump(frame_.exits.back().merge);
    case Statement::Kind::next:
      for (size_t i = frame_.exits.size(); i-- > 0;) {
        if (frame_.exits[i].next) return jump(frame_.exits[i].next);
      }
      return;
    case Statement::Kind::give:
      if (s.a) {
        put(frame_.body, OpReturnValue, {value(*s.a).id});
      } else {
        put(frame_.body, OpReturn, Words{});
      }
      frame_.is_closed = true;
  }
}

void Emitter::declare(const Statement& s) {
  const Variable& variable = *s.variable;
  if (variable.role == Variable::Role::local_array) {
    if (!is_vulkan()) local_variable(&variable);
    return;
  }
  const Type& type = *variable.type;
  if (s.a && !variable.is_assigned && type.kind != Kind::array && frame_.choices == 0) {
    frame_.slots[&variable] = {Slot::Kind::value, value(*s.a), {}};
    return;
  }
  Slot& slot = frame_.slots[&variable];
  slot.kind = Slot::Kind::place;
  slot.place.type = &type;
  if (!slot.place.root) {
    const uint32_t cell = type.is_pointer() ? register_type(type) : cell_type(type, Layout::plain);
    slot.place.root = private_variable(cell);
  }
  if (!s.a) return;
  const Place to = slot.place;
  if (s.a->op == Operator::list) return initialize(to, *s.a);
  const Value first = value(*s.a);
  frame_.slots[&variable].value.base = first.base;
  store(to, first.id);
}

void Emitter::initialize(const Place& at, const Expression& e) {
  if (e.op != Operator::list) return store(at, value(e).id);
  const Type& type = *at.type;
  const bool is_array = type.kind == Kind::array;
  const size_t count = is_array ? type.count : type.record->members.size();
  if (e.arguments.size() < count) store(at, null(cell_type(type, Layout::plain)));
  for (uint32_t i = 0; i < e.arguments.size(); ++i) {
    initialize(is_array ? element_of(at, u32(i), *types_[static_cast<size_t>(Kind::i32)]) : member_of(at, i), *e.arguments[i]);
  }
}

void Emitter::branch(const Statement& s) {
  if (s.a->op == Operator::constant) {
    if (const Statement* taken = s.a->integer ? s.first : s.second) statement(*taken);
    return;
  }
  const uint32_t condition = value(*s.a).id;
  const uint32_t yes = assembler_.id(), merge = assembler_.id(), no = s.second ? assembler_.id() : merge;
  put(frame_.body, OpSelectionMerge, {merge, 0});
  branch_to(condition, yes, no);
  bool is_reached = !s.second;
  for (const auto& [part, at] : {std::pair{s.first, yes}, std::pair{s.second, no}}) {
    if (!part) continue;
    label(at);
    statement(*part);
    if (!frame_.is_closed) {
      is_reached = true;
      jump(merge);
    }
  }
  label(merge);
  if (is_reached) return;
  put(frame_.body, OpUnreachable, Words{});
  frame_.is_closed = true;
}

void Emitter::loop(const Statement& s) {
  for (const Statement* one : s.body) statement(*one);
  if (s.kind != Statement::Kind::loop_do && s.a && s.a->op == Operator::constant && !s.a->integer) return;
  const uint32_t head = assembler_.id(), body = assembler_.id(), next = assembler_.id(), merge = assembler_.id();
  jump(head);
  label(head);
  put(frame_.body, OpLoopMerge, {merge, next, s.unroll ? 1u : 0u});
  const bool is_endless = !s.a || (s.a->op == Operator::constant && s.a->integer);
  if (s.kind == Statement::Kind::loop_do || is_endless) {
    jump(body);
  } else {
    const uint32_t test = assembler_.id();
    jump(test);
    label(test);
    branch_to(value(*s.a).id, body, merge);
  }
  label(body);
  frame_.exits.push_back({merge, next, false});
  statement(*s.first);
  const bool has_break = frame_.exits.back().has_break;
  frame_.exits.pop_back();
  if (!frame_.is_closed) jump(next);
  label(next);
  if (s.b) value(*s.b);
  if (s.kind == Statement::Kind::loop_do && !is_endless) {
    branch_to(value(*s.a).id, head, merge);
  } else {
    jump(head);
  }
  label(merge);
  if (!is_endless || has_break) return;
  put(frame_.body, OpUnreachable, Words{});
  frame_.is_closed = true;
}

void Emitter::choice(const Statement& s) {
  const uint32_t selector = value(*s.a).id;
  if (s.cases.empty()) return;
  const uint32_t merge = assembler_.id();
  Words labels;
  uint32_t other = merge;
  for (const Case& one : s.cases) {
    labels.push_back(assembler_.id());
    if (one.is_default) other = labels.back();
  }
  Words operands = {selector, other};
  for (size_t i = 0; i < s.cases.size(); ++i) {
    for (const uint64_t bits : s.cases[i].values) {
      operands.push_back(static_cast<uint32_t>(bits));
      if (width_of(*s.a->type) == 64) operands.push_back(static_cast<uint32_t>(bits >> 32));
      operands.push_back(labels[i]);
    }
  }
  put(frame_.body, OpSelectionMerge, {merge, 0});
  put(frame_.body, OpSwitch, operands);
  frame_.is_closed = true;
  frame_.exits.push_back({merge, 0, other == merge});
  ++frame_.choices;
  for (size_t i = 0; i < s.cases.size(); ++i) {
    label(labels[i]);
    for (const Statement* one : s.cases[i].body) statement(*one);
    if (frame_.is_closed) continue;
    const bool is_last = i + 1 == s.cases.size();
    frame_.exits.back().has_break |= is_last;
    jump(is_last ? merge : labels[i + 1]);
  }
  --frame_.choices;
  const bool is_reached = frame_.exits.back().has_break;
  frame_.exits.pop_back();
  label(merge);
  if (is_reached) return;
  put(frame_.body, OpUnreachable, Words{});
  frame_.is_closed = true;
}

}  // namespace backplane::driver::spirv
