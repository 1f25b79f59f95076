// fallback/fallback.h: the CPU fallback: an operator without a kernel for the device runs on the CPU, zero-copy where the host can access
// device memory, else on staged copies. This header sets what it may do, and returns counts of what it did.
//
// <PREFIX>_FALLBACK at import: the initial policy, also by operator: "warn", "cpu,aten::sinc=error". "none": no fallback is registered;
// this cannot be changed later.
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

// The policy of one operator, "aten::sinc" (all its overloads) or "aten::sinc.out"; takes precedence over the general policy. nullopt: use
// the general one again. ValueError for an operator that its namespace does not have.
void set_op_policy(const std::string& op, std::optional<Policy> policy);
std::optional<Policy> op_policy(const std::string& op);

// "cpu", "warn", "error"; ValueError for anything else.
Policy parse_policy(const std::string& text);
const char* policy_name(Policy policy);

// False with <PREFIX>_FALLBACK=none. is_wanted() is valid during static initialization, too.
bool is_registered();
bool is_wanted();
std::string refused_setting();  // the error in <PREFIX>_FALLBACK; "" if there is none

// The cost of an operator since the start or the last reset.
struct Count {
  std::string op;            // "aten::sinc.out"
  uint64_t calls = 0;        // the following are counted only while accounting is on
  uint64_t to_host = 0;      // bytes copied
  uint64_t to_device = 0;    // bytes copied
  uint64_t shared = 0;       // bytes used in place
  uint64_t widened = 0;      // calls computed in float32 for a half type that the CPU does not support; always counted
  uint64_t nanoseconds = 0;  // inside the fallback
  std::string first_site;    // in Python: "train.py:12 (step)"; "" if the first call came from elsewhere
  std::string site;          // of the first call of the current epoch
};

// By name; operators that were never called are left out.
std::vector<Count> counts();
void reset_counts();
bool accounting();
void set_accounting(bool on);
void new_site_epoch();  // looks up each operator's site again at its next call

// Whether operators whose half types the CPU does not support are computed in float32 (fallback/widening.h). <PREFIX>_WIDEN=0 at import:
// no.
bool widening();
void set_widening(bool on);

// Returns the calling thread's position in Python; set by the bindings. It must take the GIL itself, and not throw.
using SiteFinder = std::string (*)();
void set_site_finder(SiteFinder finder);

// Called first for every call of the fallback. True: it has computed the results, which replace the arguments on the stack. It may throw.
using Hook = bool (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void set_hook(Hook hook);         // for a vendor's C++; NULL: none
void set_python_hook(Hook hook);  // Python's, which the bindings set: called before the C++ hook

// The boxed fallback. Kernels call it for their own operator with arguments that they do not support. `keys`: the keys of the dispatch,
// whose layouts are used; without them the arguments' own.
void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace backplane::fallback
