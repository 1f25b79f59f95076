// fallback/fallback.h: the CPU fallback: every operator without a kernel for the device runs on the CPU, on the device's own memory where
// the host reaches it, else on staged copies. What it may do is switched here, and what it did is counted.
//
// <PREFIX>_FALLBACK at import: the first policy, also by operator: "warn", "cpu,aten::sinc=error". "none": no fallback is registered at
// all; that cannot be undone.
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
// ValueError for an operator that its namespace does not have.
void set_op_policy(const std::string& op, std::optional<Policy> policy);
std::optional<Policy> op_policy(const std::string& op);

// "cpu", "warn", "error"; ValueError for anything else.
Policy parse_policy(const std::string& text);
const char* policy_name(Policy policy);

// False with <PREFIX>_FALLBACK=none. is_wanted() answers during static initialisation, too.
bool is_registered();
bool is_wanted();
std::string refused_setting();  // what is wrong with <PREFIX>_FALLBACK; "" if nothing is

// What an operator has cost since the start or the last reset.
struct Count {
  std::string op;            // "aten::sinc.out"
  uint64_t calls = 0;        // the rest only while accounting is on
  uint64_t to_host = 0;      // bytes copied
  uint64_t to_device = 0;    // bytes copied
  uint64_t shared = 0;       // bytes seen in place
  uint64_t widened = 0;      // calls computed in float32 for a half type that the CPU lacks; always counted
  uint64_t nanoseconds = 0;  // inside the fallback
  std::string first_site;    // in Python: "train.py:12 (step)"; "" if the first call came from elsewhere
  std::string site;          // of the first call of the current epoch
};

// By name; operators never called are left out.
std::vector<Count> counts();
void reset_counts();
bool accounting();
void set_accounting(bool on);
void new_site_epoch();  // each operator's next call is asked for its site again

// Whether what the CPU lacks in a half type is computed in float32 (fallback/widening.h). <PREFIX>_WIDEN=0 at import: not.
bool widening();
void set_widening(bool on);

// Says where the calling thread's Python is; the bindings set it. It must take the GIL itself, and not throw.
using SiteFinder = std::string (*)();
void set_site_finder(SiteFinder finder);

// Sees every call of the fallback first. True: it has computed the results, which are on the stack instead of the arguments. It may throw.
using Hook = bool (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void set_hook(Hook hook);         // for a vendor's C++; NULL: none
void set_python_hook(Hook hook);  // Python's, which the bindings set: it sees a call before the other

// The boxed fallback. Kernels that cannot take their arguments call it for their own operator. `keys`: those that the call was dispatched
// by, of which the layouts are used; the arguments' own where there are none.
void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace backplane::fallback
