// aten/fallback_plan.h: what the fallback knows of each operator, kept from its first call on: its schema's traits, its count and its
// policy.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace backplane::fallback {

struct Plan {
  enum Flag : uint8_t {
    written = 1,    // the operator changes it
    on_host = 2,    // may lie on the CPU beside device tensors, whatever its size
    generator = 4,  // Generator?, also where None is passed
    pin = 8,        // pin_memory
  };
  static constexpr int8_t kGeneralPolicy = -1;

  c10::OperatorName name;
  std::string full_name;       // "aten::sinc.out"
  std::vector<uint8_t> flags;  // one an argument
  size_t returns = 0;
  bool is_view = false;
  std::atomic<uint64_t> calls{0};
  std::atomic<int8_t> policy{kGeneralPolicy};
  std::atomic<bool> warned{false};

  Plan(c10::OperatorName op_name, std::string text) : name(std::move(op_name)), full_name(std::move(text)) {}
};

// Any thread; without a lock after the thread's first call of the operator. Lives to the end of the process.
Plan& plan_for(const c10::OperatorHandle& op);

// Warns or throws as the policy in force says. The arguments are on the stack.
void apply_policy(Plan& plan, torch::jit::Stack& stack);

// " for Float, Long": of the tensors among the last `count` values of the stack; "" if there are none.
std::string dtypes_of(torch::jit::Stack& stack, size_t count);

// <PREFIX>_FALLBACK. A wrong value raises at the first call, since no exception may leave a static initialiser.
void take_policy_from_environment();

}  // namespace backplane::fallback
