// aten/observe_operators.cpp: torch's observer that records the running operators.
#include "aten/observe_operators.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/activity.h"
#include "runtime/watchdog.h"

namespace backplane {
namespace observe_operators_impl {
namespace {

std::atomic<uint64_t> calls{0};

struct Entered : at::ObserverContext {
  // An asynchronous operator may end on a thread other than the one where it began.
  ~Entered() override {
    if (!running_operators().empty()) running_operators().pop_back();
  }
};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  const std::optional<c10::OperatorName> op = function.operator_name();
  std::string name = op ? op->name : std::string(function.name());
  if (op && !op->overload_name.empty()) name += '.' + op->overload_name;
  running_operators().push_back({std::move(name), ++calls});
  return std::make_unique<Entered>();
}

std::optional<at::CallbackHandle> handle;
int followers = 0;

// Operators open their observers before any kernel is called, so the watchdog's observer is registered when this library is loaded.
[[maybe_unused]] const bool following = [] {
  if (watching()) observe_operators(true);
  return true;
}();

}  // namespace
}  // namespace observe_operators_impl

void observe_operators(bool on) {
  using namespace observe_operators_impl;
  followers = std::max(followers + (on ? 1 : -1), 0);
  if ((followers > 0) == handle.has_value()) return;
  if (on) {
    handle =
        at::addGlobalCallback(at::RecordFunctionCallback(enter).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  } else {
    at::removeCallback(*std::exchange(handle, std::nullopt));
  }
}

}  // namespace backplane
