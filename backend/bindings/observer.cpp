// bindings/observer.cpp: which operators enclose the current call, by torch's own observers. A composite operator is taken apart before any
// dispatch mode sees it; this is how `torch-backplane coverage` knows that it was called. Costs nothing while off.
#include "bindings/module.h"

#include <ATen/record_function.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace backplane::bindings {
namespace {

struct Enclosing {
  std::string name;  // "aten::linear", "aten::mean.dim", or a node of autograd, "AddmmBackward0"
  uint64_t serial;   // of the call, in this process
};

thread_local std::vector<Enclosing> enclosing;
std::atomic<uint64_t> calls = 0;
std::optional<at::CallbackHandle> handle;  // the GIL guards it

struct Entered : at::ObserverContext {
  ~Entered() override { enclosing.pop_back(); }
};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  const std::optional<c10::OperatorName> op = function.operator_name();
  std::string name = op ? op->name : std::string(function.name());
  if (op && !op->overload_name.empty()) name += '.' + op->overload_name;
  enclosing.push_back({std::move(name), ++calls});
  return std::make_unique<Entered>();
}

void observe(bool on) {
  if (on == handle.has_value()) return;
  if (on) {
    handle =
        at::addGlobalCallback(at::RecordFunctionCallback(enter).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  } else {
    at::removeCallback(*std::exchange(handle, std::nullopt));
  }
}

std::vector<std::pair<std::string, uint64_t>> enclosing_operators() {
  std::vector<std::pair<std::string, uint64_t>> list;
  for (const Enclosing& entry : enclosing) list.emplace_back(entry.name, entry.serial);
  return list;
}

}  // namespace

void bind_observer(py::module_& module) {
  def_quick(module, "observe_operators", observe);
  def_quick(module, "enclosing_operators", enclosing_operators);
}

}  // namespace backplane::bindings
