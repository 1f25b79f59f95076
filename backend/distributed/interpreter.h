// distributed/interpreter.h: keeps threads of a group, which nothing joins, from Python when it goes: a thread that asks for the GIL then
// is ended in the midst of C++, and the process with it. Callbacks of futures and the last reference to a tensor may ask for it.
#pragma once

namespace backplane::distributed {

// While one that is allowed lives, end_of_interpreter() waits. Any thread.
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

// Before Python goes, without the GIL: no use is allowed from now on; waits for those that have begun, for a few seconds.
void end_of_interpreter();

}  // namespace backplane::distributed
