// aten/fallback.h: the CPU fallback: every operator without a kernel for the device runs on the CPU, on the device's own memory where the
// host reaches it, else on staged copies. What it may do is switched here.
//
// <PREFIX>_FALLBACK at import: cpu (default), warn, error: the first policy. none: no fallback is registered at all; that cannot be undone.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace backplane::fallback {

// cpu: runs silently. warn: once per operator. error: raises NotImplementedError naming the operator, its dtypes and what to do.
enum class Policy : int8_t { cpu, warn, error };

Policy policy();
void set_policy(Policy policy);

// For one operator, "aten::sinc" (all its overloads) or "aten::sinc.out"; before the general policy. nullopt: the general one again.
void set_op_policy(const std::string& op, std::optional<Policy> policy);

// "cpu", "warn", "error"; ValueError for anything else.
Policy parse_policy(const std::string& text);
const char* policy_name(Policy policy);

// False with <PREFIX>_FALLBACK=none. is_wanted() answers during static initialisation, too.
bool is_registered();
bool is_wanted();

struct Calls {
  std::string op;  // "aten::sinc.out"
  uint64_t calls;
};

// Calls since the start or the last reset, the most frequent first; operators never called are left out.
std::vector<Calls> calls();
void reset_calls();

// The boxed fallback. Kernels that cannot take their arguments call it for their own operator.
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace backplane::fallback
