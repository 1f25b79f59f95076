// aten/watch_operators.cpp: tells the runtime which operator runs, by torch's observers, if work is watched (runtime/watchdog.h).
#include <ATen/record_function.h>

#include <memory>
#include <string>
#include <utility>

#include "runtime/watchdog.h"

namespace backplane::watch_operators_impl {
namespace {

struct Entered : at::ObserverContext {
  explicit Entered(std::string name) : outer(exchange_operator(std::move(name))) {}
  ~Entered() override { exchange_operator(std::move(outer)); }
  std::string outer;
};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  return std::make_unique<Entered>(std::string(function.name()));
}

// Operators open their observers before any kernel is called, so they are followed from the load of this library on.
[[maybe_unused]] const bool following = [] {
  if (!watching()) return false;
  at::addGlobalCallback(at::RecordFunctionCallback(enter).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  return true;
}();

}  // namespace
}  // namespace backplane::watch_operators_impl
