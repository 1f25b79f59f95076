// fallback/plan.cpp: schemas, read once per operator.
#include "fallback/plan.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "fallback/policy.h"

namespace backplane::fallback {

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

namespace plan_impl {
namespace {

struct State {
  std::mutex mutex;
  std::unordered_map<const c10::FunctionSchema*, std::shared_ptr<Plan>> plans;  // superseded plans stay alive in `all`
  std::vector<std::shared_ptr<Plan>> all;
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

bool ends_with(const std::string& text, const char* end) {
  const std::string_view suffix = end;
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// Whether the kernels of an operator's out= forms write every element of a dense out. Structured kernels do: the functional form, which
// torch generates from them and registers under this key, runs them on new memory. native_batch_norm.out, for example, does not.
bool fills_out(const std::string& name) {
  static const auto* const structured = [] {
    auto* const names = new std::unordered_set<std::string>;
    const auto key = c10::DispatchKey::CompositeExplicitAutogradNonFunctional;
    for (const c10::OperatorName& op : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key)) names->insert(op.name);
    return names;
  }();
  return structured->count(name) != 0;
}

uint8_t flags_of(const c10::FunctionSchema& schema, const c10::Argument& argument, bool fills) {
  const std::string& name = argument.name();
  uint8_t flags = 0;
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) {
    flags |= Plan::written | (argument.is_out() && fills ? Plan::filled : 0);
  }
  // Batch norms update their running statistics without a mark in the schema.
  if ((name == "running_mean" || name == "running_var") && schema.name().find("backward") == std::string::npos) flags |= Plan::written;
  // Index lists, lengths and the sizes of nested tensors may be on the CPU, as for CUDA.
  const bool is_list = argument.type()->kind() == c10::TypeKind::ListType;
  if ((name == "indices" && is_list) || ends_with(name, "lengths") || name == "batch_sizes" || name.compare(0, 4, "cpu_") == 0) {
    flags |= Plan::on_host;
  }
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (type->kind() == c10::TypeKind::GeneratorType) flags |= Plan::generator;
  if (name == "pin_memory") flags |= Plan::pin;
  c10::TypePtr real = argument.real_type();
  if (const auto optional = real->cast<c10::OptionalType>()) real = optional->getElementType();
  if (real->kind() == c10::TypeKind::ScalarTypeType) flags |= Plan::dtype;
  return flags;
}

std::shared_ptr<Plan> make_plan(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto plan = std::make_shared<Plan>(op.operator_name(), full_name(op.operator_name()));
  // torch has kernels of these for dense tensors of each device; the CPU's kernels would communicate copies.
  TORCH_CHECK_NOT_IMPLEMENTED(plan->full_name.compare(0, 6, "c10d::") != 0, plan->full_name,
                              ": a process group of " BACKPLANE_DEVICE_NAME
                              " tensors supports only dense ones; communicate indices and values, or x.to_dense()");
  const bool fills = fills_out(op.operator_name().name);
  for (const c10::Argument& argument : schema.arguments()) plan->flags.push_back(flags_of(schema, argument, fills));
  plan->returns = schema.returns().size();
  plan->has_warned = plan->full_name == "aten::index.Tensor_out";  // for uint8 masks: torch itself computes the shape
  for (const c10::Argument& result : schema.returns()) {
    plan->is_view |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  }
  return plan;
}

void note_dtype(const at::Tensor& tensor, std::vector<c10::ScalarType>& seen) {
  if (!tensor.defined()) return;
  const c10::ScalarType dtype = tensor.scalar_type();
  if (std::find(seen.begin(), seen.end(), dtype) == seen.end()) seen.push_back(dtype);
}

}  // namespace
}  // namespace plan_impl

Plan::Halves Plan::halves(const std::string& dtypes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = halves_.find(dtypes);
  return found == halves_.end() ? Halves::unknown : found->second;
}

void Plan::set_halves(const std::string& dtypes, Halves value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  halves_[dtypes] = value;
}

// A schema's address may be reused after a Python library was destroyed, so the name is compared.
Plan& plan_for(const c10::OperatorHandle& op) {
  const c10::FunctionSchema* const key = &op.schema();
  static thread_local std::unordered_map<const c10::FunctionSchema*, Plan*> cache;
  const auto cached = cache.find(key);
  if (C10_LIKELY(cached != cache.end() && cached->second->name == op.operator_name())) return *cached->second;
  plan_impl::State& s = plan_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  std::shared_ptr<Plan>& plan = s.plans[key];
  if (plan == nullptr || plan->name != op.operator_name()) {
    plan = plan_impl::make_plan(op);
    plan->policy = policy_set_for(plan->name);
    s.all.push_back(plan);
  }
  cache[key] = plan.get();
  return *plan;
}

std::vector<Plan*> all_plans() {
  plan_impl::State& s = plan_impl::state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  std::vector<Plan*> plans;
  for (const auto& plan : s.all) plans.push_back(plan.get());
  return plans;
}

std::string dtypes_of(const torch::jit::Stack& stack, size_t count) {
  std::vector<c10::ScalarType> seen;
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(count); value != stack.end(); ++value) {
    if (value->isTensor()) plan_impl::note_dtype(value->toTensor(), seen);
    if (!value->isTensorList()) continue;
    const c10::List<at::Tensor> list = value->toTensorList();
    for (const at::Tensor& tensor : list) plan_impl::note_dtype(tensor, seen);
  }
  std::string text;
  for (const c10::ScalarType dtype : seen) text += std::string(text.empty() ? " for " : ", ") + c10::toString(dtype);
  return text;
}

}  // namespace backplane::fallback
