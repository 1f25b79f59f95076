// bindings/observer.cpp: which operators enclose the current call, for torch_backplane.ops.
#include "bindings/module.h"

#include <utility>
#include <vector>

#include "aten/observe_operators.h"
#include "runtime/activity.h"

namespace backplane::bindings {
namespace {

std::vector<std::pair<std::string, uint64_t>> enclosing_operators() {
  std::vector<std::pair<std::string, uint64_t>> list;
  for (const RunningOperator& running : running_operators()) list.emplace_back(running.name, running.serial);
  return list;
}

}  // namespace

void bind_observer(py::module_& module) {
  def_quick(module, "observe_operators", [](bool on) { observe_operators(on); });
  def_quick(module, "enclosing_operators", enclosing_operators);
}

}  // namespace backplane::bindings
