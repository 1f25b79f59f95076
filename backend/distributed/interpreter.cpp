// distributed/interpreter.cpp: counts the uses of the interpreter.
#include "distributed/interpreter.h"

#include <condition_variable>
#include <mutex>

#include "distributed/workers.h"

namespace backplane::distributed {
namespace interpreter_impl {
namespace {

struct Uses {
  std::mutex mutex;  // protects what follows
  std::condition_variable over;
  int count = 0;
  bool is_over = false;
};

// Never destroyed: threads may still run at the end of the process.
Uses& uses() {
  static auto* const uses = new Uses();
  return *uses;
}

}  // namespace
}  // namespace interpreter_impl

using interpreter_impl::uses;

InterpreterUse::InterpreterUse() {
  const std::lock_guard<std::mutex> lock(uses().mutex);
  is_allowed_ = !uses().is_over;
  if (is_allowed_) ++uses().count;
}

InterpreterUse::~InterpreterUse() {
  if (!is_allowed_) return;
  const std::lock_guard<std::mutex> lock(uses().mutex);
  --uses().count;
  uses().over.notify_all();
}

void end_of_interpreter() {
  std::unique_lock<std::mutex> lock(uses().mutex);
  uses().is_over = true;
  uses().over.wait_for(lock, kShutdownTimeout, [] { return uses().count == 0; });
}

}  // namespace backplane::distributed
