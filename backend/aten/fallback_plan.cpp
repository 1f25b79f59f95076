// aten/fallback_plan.cpp: schemas read once an operator, policies, counts.
#include "aten/fallback_plan.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "aten/fallback.h"
#include "runtime/options.h"

namespace backplane::fallback {
namespace {

struct State {
  std::mutex mutex;
  std::unordered_map<const c10::FunctionSchema*, std::shared_ptr<Plan>> plans;  // superseded plans stay alive in `all`
  std::vector<std::shared_ptr<Plan>> all;
  std::map<std::string, Policy> op_policies;
  std::atomic<Policy> policy{Policy::cpu};
  std::string refused_setting;  // <PREFIX>_FALLBACK at import, if it is none of the known ones
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool ends_with(const std::string& text, const char* end) {
  const std::string_view suffix = end;
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

uint8_t flags_of(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  const std::string& name = argument.name();
  uint8_t flags = 0;
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) flags |= Plan::written;
  // Batch norms update their running statistics without saying so in the schema.
  if ((name == "running_mean" || name == "running_var") && schema.name().find("backward") == std::string::npos) flags |= Plan::written;
  // Index lists and lengths may lie on the CPU, as with CUDA.
  const bool is_list = argument.type()->kind() == c10::TypeKind::ListType;
  if ((name == "indices" && is_list) || ends_with(name, "lengths") || name == "batch_sizes") flags |= Plan::on_host;
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (type->kind() == c10::TypeKind::GeneratorType) flags |= Plan::generator;
  if (name == "pin_memory") flags |= Plan::pin;
  return flags;
}

// Under the state's mutex: the policy that was set for this operator, by full name or by name without overload.
int8_t policy_set_for(const Plan& plan) {
  for (const std::string& name : {plan.full_name, plan.name.name}) {
    const auto found = state().op_policies.find(name);
    if (found != state().op_policies.end()) return static_cast<int8_t>(found->second);
  }
  return Plan::kGeneralPolicy;
}

std::shared_ptr<Plan> make_plan(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto plan = std::make_shared<Plan>(op.operator_name(), full_name(op.operator_name()));
  for (const c10::Argument& argument : schema.arguments()) plan->flags.push_back(flags_of(schema, argument));
  plan->returns = schema.returns().size();
  for (const c10::Argument& result : schema.returns()) {
    plan->is_view |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  }
  return plan;
}

}  // namespace

// A schema's address may be reused after a Python library was destroyed, hence the look at the name.
Plan& plan_for(const c10::OperatorHandle& op) {
  const c10::FunctionSchema* const key = &op.schema();
  static thread_local std::unordered_map<const c10::FunctionSchema*, Plan*> cache;
  const auto cached = cache.find(key);
  if (C10_LIKELY(cached != cache.end() && cached->second->name == op.operator_name())) return *cached->second;
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  std::shared_ptr<Plan>& plan = s.plans[key];
  if (plan == nullptr || plan->name != op.operator_name()) {
    plan = make_plan(op);
    plan->policy = policy_set_for(*plan);
    s.all.push_back(plan);
  }
  cache[key] = plan.get();
  return *plan;
}

std::string dtypes_of(torch::jit::Stack& stack, size_t count) {
  std::vector<c10::ScalarType> seen;
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(count); value != stack.end(); ++value) {
    if (!value->isTensor() || !value->toTensor().defined()) continue;
    const c10::ScalarType dtype = value->toTensor().scalar_type();
    if (std::find(seen.begin(), seen.end(), dtype) == seen.end()) seen.push_back(dtype);
  }
  std::string text;
  for (const c10::ScalarType dtype : seen) text += std::string(text.empty() ? " for " : ", ") + c10::toString(dtype);
  return text;
}

void apply_policy(Plan& plan, torch::jit::Stack& stack) {
  TORCH_CHECK_VALUE(state().refused_setting.empty(), state().refused_setting);
  const int8_t own = plan.policy.load(std::memory_order_relaxed);
  const Policy policy = own == Plan::kGeneralPolicy ? state().policy.load(std::memory_order_relaxed) : static_cast<Policy>(own);
  if (C10_LIKELY(policy == Policy::cpu)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(policy != Policy::error, plan.full_name, " has no kernel", dtypes_of(stack, plan.flags.size()), " on ",
                              device_name(),
                              ", and the fallback's policy is 'error'. Write a kernel for it (backplane/kernel.h), or set the ",
                              "policy to 'cpu' to let the CPU compute it");
  if (!plan.warned.exchange(true)) {
    TORCH_WARN(plan.full_name, " has no kernel", dtypes_of(stack, plan.flags.size()), " on ", device_name(), "; the CPU computes it");
  }
}

void take_policy_from_environment() {
  const std::optional<std::string> setting = env("FALLBACK");
  if (!setting) return;
  try {
    state().policy = parse_policy(*setting);
  } catch (const c10::Error& error) {
    state().refused_setting = BACKPLANE_ENV_PREFIX "_FALLBACK: " + std::string(error.what_without_backtrace());
  }
}

Policy parse_policy(const std::string& text) {
  for (const Policy policy : {Policy::cpu, Policy::warn, Policy::error}) {
    if (text == policy_name(policy)) return policy;
  }
  TORCH_CHECK_VALUE(false, "'", text, "' is no fallback policy; there are cpu, warn, error (and, in the environment at import, none)");
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

Policy policy() { return state().policy; }

void set_policy(Policy policy) {
  state().refused_setting.clear();
  state().policy = policy;
}

void set_op_policy(const std::string& op, std::optional<Policy> policy) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (policy) {
    s.op_policies[op] = *policy;
  } else {
    s.op_policies.erase(op);
  }
  for (const auto& plan : s.all) plan->policy = policy_set_for(*plan);
}

std::vector<Calls> calls() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  std::map<std::string, uint64_t> counts;
  for (const auto& plan : s.all) {
    if (plan->calls > 0) counts[plan->full_name] += plan->calls;
  }
  std::vector<Calls> result;
  for (const auto& [op, count] : counts) result.push_back({op, count});
  std::stable_sort(result.begin(), result.end(), [](const Calls& a, const Calls& b) { return a.calls > b.calls; });
  return result;
}

void reset_calls() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  for (const auto& plan : s.all) plan->calls = 0;
}

}  // namespace backplane::fallback
