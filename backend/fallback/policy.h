// fallback/policy.h: the effective policy of an operator, and the error when it forbids the fallback. fallback.h sets policies.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>

#include "fallback/plan.h"

namespace backplane::fallback {

namespace policy_impl {
extern std::atomic<bool> is_plain;  // the policy is "cpu" for every operator, and the environment's setting is valid
void apply(Plan& plan, const c10::OperatorHandle& op, c10::DispatchKey key, const torch::jit::Stack& stack);
}  // namespace policy_impl

// Warns or throws according to the effective policy. The arguments are on the stack; `key` is the key without a kernel.
inline void apply_policy(Plan& plan, const c10::OperatorHandle& op, c10::DispatchKey key, const torch::jit::Stack& stack) {
  if (C10_UNLIKELY(!policy_impl::is_plain.load(std::memory_order_relaxed))) policy_impl::apply(plan, op, key, stack);
}

// The line of Python that registers a device kernel of an operator, for messages.
std::string kernel_in_python(const c10::OperatorName& name);

// The policy that is set for this operator, by its full name or without overload; Plan::kGeneralPolicy if there is none.
int8_t policy_set_for(const c10::OperatorName& name);

// <PREFIX>_FALLBACK. An invalid value is an error of the import, and of every call where there is no import: an exception must not leave a
// static initializer.
void take_policy_from_environment();

}  // namespace backplane::fallback
