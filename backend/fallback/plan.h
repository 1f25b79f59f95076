// fallback/plan.h: what the fallback knows of each operator, cached at its first call: its schema's traits, its account and its policy.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fallback/account.h"

namespace backplane::fallback {

struct Plan {
  enum Flag : uint8_t {
    written = 1,    // the operator modifies it
    on_host = 2,    // may be on the CPU beside device tensors, whatever its size
    generator = 4,  // Generator?, also where None is passed
    pin = 8,        // pin_memory
    filled = 16,    // written completely if it is dense, and its old content is not read
    dtype = 32,     // ScalarType, ScalarType?
  };
  static constexpr int8_t kGeneralPolicy = -1;

  c10::OperatorName name;
  std::string full_name;       // "aten::sinc.out"
  std::vector<uint8_t> flags;  // one per argument
  size_t returns = 0;
  bool is_view = false;
  bool has_warned = false;  // the caller has issued its warnings
  Account account;
  std::atomic<int8_t> policy{kGeneralPolicy};
  std::atomic<uint32_t> warned{0};  // the setting of "warn" for which the warning was issued

  Plan(c10::OperatorName op_name, std::string text) : name(std::move(op_name)), full_name(std::move(text)) {}

  // What is known of the CPU's kernel for a half type, from calls with exactly these dtypes (fallback/widening.h). Any thread.
  enum class Halves : uint8_t { unknown, computed, unsupported };
  Halves halves(const std::string& dtypes) const;
  void set_halves(const std::string& dtypes, Halves value);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Halves> halves_;
};

// Any thread; without a lock after the thread's first call of the operator. Lives until the end of the process.
Plan& plan_for(const c10::OperatorHandle& op);
std::vector<Plan*> all_plans();

// "aten::sinc.out"
std::string full_name(const c10::OperatorName& name);

// " for Float, Long": the dtypes of the tensors among the last `count` values of the stack; "" if there are none.
std::string dtypes_of(const torch::jit::Stack& stack, size_t count);

}  // namespace backplane::fallback
