// distributed/interpreter.h: keeps a group's detached threads out of Python when the interpreter ends. A thread that requests the GIL then
// is terminated inside C++, and the process with it. Callbacks of futures and releases of tensors may request it.
#pragma once

namespace backplane::distributed {

// end_of_interpreter() waits for objects that are allowed. Any thread.
class InterpreterUse {
 public:
  InterpreterUse();
  ~InterpreterUse();
  InterpreterUse(const InterpreterUse&) = delete;
  InterpreterUse& operator=(const InterpreterUse&) = delete;

  bool is_allowed() const { return is_allowed_; }

 private:
  bool is_allowed_;
};

// Call before the interpreter ends, without the GIL: disallows further uses, and waits a few seconds for current ones.
void end_of_interpreter();

}  // namespace backplane::distributed
