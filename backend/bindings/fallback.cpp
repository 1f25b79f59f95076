// bindings/fallback.cpp: policy and account of the CPU fallback, and the position of its callers in Python.
#include "fallback/fallback.h"

#include "bindings/module.h"
#include "fallback/cuda_only.h"

namespace backplane::bindings {
namespace {

std::optional<std::string> op_policy(const std::string& op) {
  const auto policy = fallback::op_policy(op);
  return policy ? std::optional<std::string>(fallback::policy_name(*policy)) : std::nullopt;
}

void set_op_policy(const std::string& op, const std::optional<std::string>& policy) {
  fallback::set_op_policy(op, policy ? std::optional(fallback::parse_policy(*policy)) : std::nullopt);
}

py::list fallback_counts() {
  py::list list;
  for (const fallback::Count& count : fallback::counts()) {
    list.append(py::make_tuple(count.op, count.calls, count.to_host, count.to_device, count.shared, count.widened, count.nanoseconds,
                               count.first_site, count.site));
  }
  return list;
}

std::string find_site() {
  if (Py_IsInitialized() == 0) return "";
  const py::gil_scoped_acquire gil;
  const py::error_scope kept;  // a pending exception stays pending
  try {
    return py::module_::import("torch_backplane.fallback").attr("_find_site")().cast<std::string>();
  } catch (py::error_already_set& error) {
    if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();  // it was for the user's code, and is raised there again
    return "";
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace

void bind_fallback(py::module_& module) {
  def_quick(module, "policy", [] { return std::string(fallback::policy_name(fallback::policy())); });
  def_quick(module, "op_policy", op_policy);
  def_quick(module, "set_policy", [](const std::string& policy) { fallback::set_policy(fallback::parse_policy(policy)); });
  def_quick(module, "set_op_policy", set_op_policy);
  def_quick(module, "refused_setting", [] { return fallback::refused_setting(); });
  def_quick(module, "is_registered", [] { return fallback::is_registered(); });
  def_quick(module, "counts", fallback_counts);
  def_quick(module, "reset_counts", [] { fallback::reset_counts(); });
  def_quick(module, "accounting", [] { return fallback::accounting(); });
  def_quick(module, "set_accounting", [](bool on) { fallback::set_accounting(on); });
  def_quick(module, "instead_of", [](const std::string& op) { return fallback::instead_of(op); });
  def_quick(module, "widening", [] { return fallback::widening(); });
  def_quick(module, "set_widening", [](bool on) { fallback::set_widening(on); });
  def_quick(module, "new_site_epoch", [] { fallback::new_site_epoch(); });
  def_quick(module, "set_hook", set_fallback_hook);
  def_quick(module, "run", run_fallback);
  fallback::set_site_finder(&find_site);
}

}  // namespace backplane::bindings
