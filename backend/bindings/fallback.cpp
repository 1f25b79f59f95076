// bindings/fallback.cpp: the switch and the counters of the CPU fallback.
#include "aten/fallback.h"

#include "bindings/module.h"

namespace backplane::bindings {
namespace {

void set_op_policy(const std::string& op, const std::optional<std::string>& policy) {
  fallback::set_op_policy(op, policy ? std::optional(fallback::parse_policy(*policy)) : std::nullopt);
}

std::vector<std::pair<std::string, uint64_t>> fallback_calls() {
  std::vector<std::pair<std::string, uint64_t>> list;
  for (auto& entry : fallback::calls()) list.emplace_back(std::move(entry.op), entry.calls);
  return list;
}

}  // namespace

void bind_fallback(py::module_& module) {
  def_quick(module, "fallback_policy", [] { return std::string(fallback::policy_name(fallback::policy())); });
  def_quick(module, "set_fallback_policy", [](const std::string& policy) { fallback::set_policy(fallback::parse_policy(policy)); });
  def_quick(module, "set_fallback_op_policy", set_op_policy);
  def_quick(module, "fallback_registered", [] { return fallback::is_registered(); });
  def_quick(module, "fallback_calls", fallback_calls);
  def_quick(module, "reset_fallback_calls", [] { fallback::reset_calls(); });
}

}  // namespace backplane::bindings
