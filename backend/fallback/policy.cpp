// fallback/policy.cpp: what the fallback may do: the general policy, policies of single operators, and the environment's setting.
#include "fallback/policy.h"

#include <c10/core/DispatchKeySet.h>

#include <map>
#include <mutex>
#include <sstream>

#include "fallback/fallback.h"
#include "runtime/options.h"

namespace backplane::fallback {

namespace policy_impl {

std::atomic<bool> is_plain{true};

namespace {

struct State {
  std::mutex mutex;  // protects all but the atomics
  std::map<std::string, Policy> op_policies;
  std::string refused_setting;          // <PREFIX>_FALLBACK at import, if it is invalid
  std::atomic<uint32_t> warn_epoch{1};  // a new one with each setting of "warn"
  std::atomic<Policy> policy{Policy::cpu};
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

void update_is_plain(const State& s) { is_plain = s.policy == Policy::cpu && s.op_policies.empty() && s.refused_setting.empty(); }

void update_plans() {
  for (Plan* plan : all_plans()) plan->policy = policy_set_for(plan->name);
}

void check_is_operator(const std::string& op) {
  const size_t colons = op.find("::");
  TORCH_CHECK_VALUE(colons != std::string::npos && colons > 0, "'", op,
                    "' is not an operator's name; write it with its namespace, as 'aten::sinc' or 'aten::sinc.out'");
  bool namespace_exists = false;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name == op || full_name(name) == op) return;
    namespace_exists |= name.name.compare(0, colons + 2, op, 0, colons + 2) == 0;
  }
  // Operators of a library that is not loaded yet can be named.
  TORCH_CHECK_VALUE(!namespace_exists, "there is no operator '", op, "'; torch.ops lists the operators, and aten::op.overload names one");
}

std::string kernel_to_write(const c10::OperatorHandle& op, c10::DispatchKey key) {
  const c10::OperatorName& name = op.operator_name();
  const size_t colons = name.name.find("::");
  const std::string space = name.name.substr(0, colons);
  const std::string bare = full_name(name).substr(colons + 2);
  std::string function = bare;
  for (char& letter : function) letter = letter == '.' ? '_' : letter;
  std::ostringstream text;
  text << "  TORCH_LIBRARY_IMPL(" << space << ", " << c10::toString(key) << ", m) { m.impl(\"" << bare << "\", TORCH_FN(" << function
       << ")); }\n  // " << op.schema();
  return text.str();
}

// ". Called at train.py:12 (step)"
std::string called_at() {
  const std::string site = python_site();
  return site.empty() ? "" : ". Called at " + site;
}

}  // namespace

void apply(Plan& plan, const c10::OperatorHandle& op, c10::DispatchKey key, const torch::jit::Stack& stack) {
  State& s = state();
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    TORCH_CHECK_VALUE(s.refused_setting.empty(), s.refused_setting);
  }
  const int8_t own = plan.policy.load(std::memory_order_relaxed);
  const Policy policy = own == Plan::kGeneralPolicy ? s.policy.load(std::memory_order_relaxed) : static_cast<Policy>(own);
  if (policy == Policy::cpu) return;
  const std::string what = plan.full_name + " has no kernel" + dtypes_of(stack, plan.flags.size()) + " on " + device_name();
  TORCH_CHECK_NOT_IMPLEMENTED(policy != Policy::error, what, ", and the fallback's policy is 'error'", called_at(),
                              ".\nWrite a kernel (backplane/kernel.h) and register it:\n", kernel_to_write(op, key), "\nor in Python:\n  ",
                              kernel_in_python(op.operator_name()), "\nOr set the policy to 'cpu' to let the CPU compute it");
  const uint32_t epoch = s.warn_epoch;
  if (plan.warned.exchange(epoch) != epoch) TORCH_WARN(what, "; the CPU computes it", called_at());
}

}  // namespace policy_impl

std::string kernel_in_python(const c10::OperatorName& name) {
  const std::string op = full_name(name);
  if (op.compare(0, 6, "aten::") == 0) return "torch_backplane.kernel(\"" + op + "\", function)";
  return "torch_backplane.ops.get(\"" + op + "\").register_kernel(\"" + device_name() + "\", function)";
}

int8_t policy_set_for(const c10::OperatorName& name) {
  policy_impl::State& s = policy_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  for (const std::string& key : {full_name(name), name.name}) {
    const auto found = s.op_policies.find(key);
    if (found != s.op_policies.end()) return static_cast<int8_t>(found->second);
  }
  return Plan::kGeneralPolicy;
}

std::string refused_setting() {
  policy_impl::State& s = policy_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return s.refused_setting;
}

// "warn", "aten::sinc=error", "cpu,aten::sinc=error,aten::mm.out=warn"; "none" is handled elsewhere.
void take_policy_from_environment() {
  const std::optional<std::string> setting = env("FALLBACK");
  if (!setting) return;
  policy_impl::State& s = policy_impl::state();
  try {
    std::istringstream items(*setting);
    for (std::string item; std::getline(items, item, ',');) {
      const size_t equals = item.find('=');
      if (equals == std::string::npos) {
        set_policy(parse_policy(item));
      } else {
        set_op_policy(item.substr(0, equals), parse_policy(item.substr(equals + 1)));
      }
    }
  } catch (const c10::Error& error) {
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.refused_setting = BACKPLANE_ENV_PREFIX "_FALLBACK=" + *setting + ": " + error.what_without_backtrace();
    policy_impl::update_is_plain(s);
  }
}

Policy parse_policy(const std::string& text) {
  for (const Policy policy : {Policy::cpu, Policy::warn, Policy::error}) {
    if (text == policy_name(policy)) return policy;
  }
  TORCH_CHECK_VALUE(
      false, "'", text,
      "' is not a fallback policy; the policies are cpu, warn, error (and, alone and only in the environment at import, none)");
}

const char* policy_name(Policy policy) {
  switch (policy) {
    case Policy::cpu:
      return "cpu";
    case Policy::warn:
      return "warn";
    case Policy::error:
      return "error";
  }
  return "unknown";
}

Policy policy() { return policy_impl::state().policy; }

std::optional<Policy> op_policy(const std::string& op) {
  policy_impl::State& s = policy_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.op_policies.find(op);
  return found == s.op_policies.end() ? std::nullopt : std::optional(found->second);
}

void set_policy(Policy policy) {
  policy_impl::State& s = policy_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.refused_setting.clear();
  if (policy == Policy::warn) ++s.warn_epoch;
  s.policy = policy;
  policy_impl::update_is_plain(s);
}

void set_op_policy(const std::string& op, std::optional<Policy> policy) {
  if (policy) policy_impl::check_is_operator(op);
  policy_impl::State& s = policy_impl::state();
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (policy) {
      if (*policy == Policy::warn) ++s.warn_epoch;
      s.op_policies[op] = *policy;
    } else {
      s.op_policies.erase(op);
    }
    policy_impl::update_is_plain(s);
  }
  policy_impl::update_plans();
}

}  // namespace backplane::fallback
