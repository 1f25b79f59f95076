// fallback/widening.cpp: a call repeated in float32.
#include "fallback/widening.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/ScalarType.h>

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fallback/fallback.h"
#include "fallback/values.h"
#include "runtime/options.h"

namespace backplane::fallback {

namespace widening_impl {
namespace {

std::atomic<bool>& is_on() {
  static std::atomic<bool> on{env("WIDEN") != "0"};
  return on;
}

bool is_half(c10::ScalarType dtype) { return widened(dtype) != dtype; }

std::optional<c10::ScalarType> dtype_argument(const c10::IValue& value, uint8_t flags) {
  if (!(flags & Plan::dtype) || !value.isInt()) return std::nullopt;
  return static_cast<c10::ScalarType>(value.toInt());
}

// The error of an AT_DISPATCH without a case for a half type: "nms_kernel" not implemented for 'Half'; and that of the FFT library.
bool is_half_type_error(const std::string& text) {
  if (text.find("MKL FFT doesn't support tensors of type: Half") != std::string::npos) return true;
  constexpr std::string_view kBefore = "not implemented for '";
  const size_t found = text.find(kBefore);
  if (found == std::string::npos) return false;
  const size_t begin = found + kBefore.size();
  const std::string dtype = text.substr(begin, text.find('\'', begin) - begin);
  return dtype == "Half" || dtype == "BFloat16" || dtype == "ComplexHalf";
}

// The dtypes of a call's tensors and dtype arguments. Only calls with exactly these dtypes are known to be unsupported: with others, the
// operator's own checks come first.
std::optional<std::string> signature_of(const Plan& plan, const torch::jit::Stack& stack) {
  const size_t first = stack.size() - plan.flags.size();
  bool has_half = false;
  for (size_t i = 0; i < plan.flags.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    visit_tensors(value, [&](const at::Tensor& tensor) { has_half |= is_half(tensor.scalar_type()); });
    if (const auto dtype = dtype_argument(value, plan.flags[i])) has_half |= is_half(*dtype);
  }
  if (C10_LIKELY(!has_half)) return std::nullopt;
  std::string text;
  const auto add = [&](c10::ScalarType dtype) { text += static_cast<char>(dtype); };
  for (size_t i = 0; i < plan.flags.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    visit_tensors(value, [&](const at::Tensor& tensor) { add(tensor.scalar_type()); });
    if (const auto dtype = dtype_argument(value, plan.flags[i])) add(*dtype);
    text += ';';
  }
  return text;
}

// The arguments of one call in float32, and the conversion back.
class WideCall {
 public:
  WideCall(const Plan& plan, c10::ArrayRef<c10::IValue> arguments) : plan_(plan), arguments_(arguments.vec()) { find_half(); }

  // Puts the wider arguments on the stack.
  void push(torch::jit::Stack& stack) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (const auto dtype = dtype_argument(arguments_[i], plan_.flags[i])) {
        stack.emplace_back(static_cast<int64_t>(widened(*dtype)));
      } else {
        stack.push_back(map_tensors(arguments_[i], [&](const at::Tensor& tensor) { return wide(tensor, plan_.flags[i]); }));
      }
    }
  }

  // Rounds written values into the arguments, and the results, which are at the end of the stack.
  void narrow(torch::jit::Stack& stack) {
    for (const Pair& pair : pairs_) {
      if (!pair.is_written) continue;
      if (pair.half.sizes() != pair.wide.sizes()) pair.half.resize_(pair.wide.sizes());
      pair.half.copy_(pair.wide);
    }
    for (auto value = stack.end() - static_cast<std::ptrdiff_t>(plan_.returns); value != stack.end(); ++value) {
      *value = map_tensors(*value, [&](const at::Tensor& tensor) { return rounded(tensor); });
    }
  }

 private:
  struct Pair {
    at::Tensor half;
    at::Tensor wide;
    bool is_written;
  };

  // The half type of the results: that of a dtype argument; else that of all floating tensors, or if they differ, that of the first one, as
  // for a normalization with parameters of another dtype. None if the results are not half types anyway.
  void find_half() {
    std::optional<c10::ScalarType> first;
    bool are_two_halves = false;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (const auto dtype = dtype_argument(arguments_[i], plan_.flags[i])) {
        half_ = is_half(*dtype) ? std::optional(*dtype) : std::nullopt;
        return;
      }
      visit_tensors(arguments_[i], [&](const at::Tensor& tensor) {
        const c10::ScalarType dtype = tensor.scalar_type();
        if (!c10::isFloatingType(dtype) && !c10::isComplexType(dtype)) return;
        const c10::ScalarType real = c10::toRealValueType(dtype);
        are_two_halves |= first && is_half(real) && is_half(*first) && real != *first;
        if (!first) first = real;
      });
    }
    if (first && is_half(*first) && !are_two_halves) half_ = first;
  }

  at::Tensor wide(const at::Tensor& tensor, uint8_t flags) {
    if (!is_half(tensor.scalar_type())) return tensor;
    const bool is_written = flags & Plan::written;
    for (Pair& pair : pairs_) {
      if (!pair.half.is_same(tensor)) continue;
      pair.is_written |= is_written;
      return pair.wide;
    }
    const c10::ScalarType dtype = widened(tensor.scalar_type());
    pairs_.push_back({tensor, flags & Plan::filled ? at::empty_like(tensor, tensor.options().dtype(dtype)) : tensor.to(dtype), is_written});
    return pairs_.back().wide;
  }

  at::Tensor rounded(const at::Tensor& result) const {
    for (const Pair& pair : pairs_) {
      if (pair.wide.is_same(result)) return pair.half;
    }
    return half_ ? result.to(narrowed(result.scalar_type(), c10::toRealValueType(*half_))) : result;
  }

  const Plan& plan_;
  std::vector<c10::IValue> arguments_;
  std::optional<c10::ScalarType> half_;
  std::vector<Pair> pairs_;
};

// The arguments, so that a call can be repeated: the state of a generator, and a copy of tensors that are read and written, since a
// composite kernel may have written before it reaches the unsupported one.
class Kept {
 public:
  Kept(const Plan& plan, const torch::jit::Stack& stack, bool with_content)
      : arguments_(stack.end() - static_cast<std::ptrdiff_t>(plan.flags.size()), stack.end()) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if ((plan.flags[i] & Plan::generator) && !arguments_[i].isNone()) arguments_[i] = arguments_[i].toGenerator().clone();
      if (!(plan.flags[i] & Plan::written) || (plan.flags[i] & Plan::filled)) continue;
      changes_content_ = true;
      if (with_content) visit_tensors(arguments_[i], [&](const at::Tensor& tensor) { contents_.emplace_back(tensor, tensor.clone()); });
    }
  }

  c10::ArrayRef<c10::IValue> arguments() const { return arguments_; }
  bool changes_content() const { return changes_content_; }
  void restore() const {
    for (const auto& [tensor, content] : contents_) tensor.copy_(content);
  }

 private:
  std::vector<c10::IValue> arguments_;
  std::vector<std::pair<at::Tensor, at::Tensor>> contents_;
  bool changes_content_ = false;
};

void run_wide(const c10::OperatorHandle& op, Plan& plan, c10::DispatchKeySet keys, c10::ArrayRef<c10::IValue> arguments,
              torch::jit::Stack& stack) {
  WideCall call(plan, arguments);
  call.push(stack);
  op.redispatchBoxed(keys, &stack);
  call.narrow(stack);
  plan.account.widened.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace
}  // namespace widening_impl

bool widening() { return widening_impl::is_on(); }
void set_widening(bool on) { widening_impl::is_on() = on; }

c10::ScalarType widened(c10::ScalarType dtype) {
  if (dtype == c10::kHalf || dtype == c10::kBFloat16) return c10::kFloat;
  return dtype == c10::kComplexHalf ? c10::kComplexFloat : dtype;
}

c10::ScalarType narrowed(c10::ScalarType dtype, c10::ScalarType half) {
  if (dtype == c10::kFloat) return half;
  return dtype == c10::kComplexFloat && half == c10::kHalf ? c10::kComplexHalf : dtype;
}

void count_widened(const c10::OperatorHandle& op) { plan_for(op).account.widened.fetch_add(1, std::memory_order_relaxed); }

void run_on_cpu(const c10::OperatorHandle& op, Plan& plan, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  std::optional<std::string> signature;
  if (widening()) signature = widening_impl::signature_of(plan, stack);
  if (C10_LIKELY(!signature)) return op.redispatchBoxed(keys, &stack);
  const size_t first = stack.size() - plan.flags.size();
  const Plan::Halves known = plan.halves(*signature);
  const widening_impl::Kept kept(plan, stack, /*with_content=*/known == Plan::Halves::unknown);
  if (known == Plan::Halves::unsupported) {
    stack.resize(first);
    return widening_impl::run_wide(op, plan, keys, kept.arguments(), stack);
  }
  std::exception_ptr refusal;
  try {
    op.redispatchBoxed(keys, &stack);
    if (known == Plan::Halves::unknown) plan.set_halves(*signature, Plan::Halves::computed);
    return;
  } catch (const c10::Error& error) {
    const bool can_repeat = known == Plan::Halves::unknown || !kept.changes_content();
    if (!can_repeat || !widening_impl::is_half_type_error(error.what_without_backtrace())) throw;
    refusal = std::current_exception();
  }
  stack.resize(first);
  kept.restore();
  try {
    widening_impl::run_wide(op, plan, keys, kept.arguments(), stack);
  } catch (const c10::NotImplementedError&) {  // not supported in float32 either
    std::rethrow_exception(refusal);
  }
  plan.set_halves(*signature, Plan::Halves::unsupported);
}

}  // namespace backplane::fallback
