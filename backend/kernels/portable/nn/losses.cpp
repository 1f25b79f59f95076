// kernels/portable/nn/losses.cpp: losses of two tensors (mse, smooth l1, huber, binary cross entropy) and the negative log likelihood, with
// reductions and gradients.
//
// A loss is an elementwise expression; its mean or sum is that of a temporary, in float32 for half types. Where the CPU raises an error for
// a value (a probability outside [0, 1], an invalid class), the result is NaN.
#include <backplane/structured.h>

#include <string>

#include "kernels/portable/reduction/reduce.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/text.h"
#include "modules/target.h"
#include "runtime/reports.h"

namespace backplane::portable {
namespace losses_impl {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

bool is_alike(const at::Tensor& tensor, const at::Tensor& input) {
  return is_float(tensor) && tensor.device() == input.device() && tensor.scalar_type() == input.scalar_type() &&
         tensor.sizes() == input.sizes();
}

// The sum or mean of all elements, into `result`.
bool fold_all(const at::Tensor& values, int64_t reduction, const at::Tensor& result) {
  DimMask all;
  for (int64_t d = 0; d < values.dim(); ++d) all.set(static_cast<size_t>(d));
  const FoldCall call{values, all, values.scalar_type()};
  return reduction == kMean ? fold({"mean"}, call, {result}) : fold({"sum"}, call, {result});
}

// ---- of two tensors ----

struct Loss {
  Literal name;
  Literal text;        // of x, the target y, the weight z if there is one, and the number s0
  Literal gradient;    // of the result's gradient x, the input y, the target z, the weight w, the number s0, and s1: 1 or 1 / count
  const char* number;  // the argument for s0
  bool has_weight = false;
};

const Loss kLosses[] = {
    {"mse_loss", "(x - y) * (x - y)", "(C)2 * (y - z) * x * s1", nullptr},
    {"smooth_l1_loss", "m_fabs(x - y) < s0 ? LIT(0.5) * (x - y) * (x - y) / s0 : m_fabs(x - y) - LIT(0.5) * s0",
     "y - z <= -s0 ? -x * s1 : y - z >= s0 ? x * s1 : (y - z) * x / s0 * s1", "beta"},
    {"huber_loss", "m_fabs(x - y) <= s0 ? LIT(0.5) * (x - y) * (x - y) : s0 * (m_fabs(x - y) - LIT(0.5) * s0)",
     "y - z <= -s0 ? -x * s0 * s1 : y - z >= s0 ? x * s0 * s1 : (y - z) * x * s1", "delta"},
    {"binary_cross_entropy", "(y - (C)1) * m_log_bounded(m_log1p(-x)) - y * m_log_bounded(m_log(x))",
     "x * (y - z) / m_odds_divisor(y) * s1", nullptr, true},
};

// The same with a weight.
constexpr Literal kWeighted = "((y - (C)1) * m_log_bounded(m_log1p(-x)) - y * m_log_bounded(m_log(x))) * z";
constexpr Literal kWeightedGradient = "x * (y - z) / m_odds_divisor(y) * w * s1";

// The positions of a form's arguments; -1: it does not have it.
struct Places {
  explicit Places(const c10::FunctionSchema& schema, const char* number_name) {
    const auto find = [&](const char* name) { return schema.argumentIndexWithName(name).value_or(-1); };
    self = find("self"), target = find("target"), weight = find("weight"), reduction = find("reduction");
    number = number_name == nullptr ? -1 : find(number_name);
    grad = find("grad_output");
    if (schema.arguments().back().is_out()) out = static_cast<int>(schema.arguments().size()) - 1;
  }
  int self, target, weight, reduction, number, grad, out = -1;
};

// The operands of both directions.
struct Operands {
  at::Tensor self, target, weight, out;
  int64_t reduction;
  double number = 0;
};

bool read(const Loss& loss, const Call& a, const Places& p, Operands& operands) {
  operands.self = a.tensor(p.self);
  operands.target = a.tensor(p.target);
  operands.reduction = a[p.reduction].toInt();
  if (p.weight >= 0) operands.weight = a.tensor_or_none(p.weight);
  if (const at::Tensor* const given = a.given()) operands.out = *given;
  if (!is_float(operands.self) || operands.self.numel() == 0 || !is_alike(operands.target, operands.self)) return false;
  if (operands.weight.defined() && !is_alike(operands.weight, operands.self)) return false;
  if (operands.reduction < kNone || operands.reduction > kSum) return false;
  if (p.number < 0) return true;
  operands.number = a[p.number].toDouble();
  return operands.number > 0 || (operands.number == 0 && loss.number == std::string_view("beta") && p.grad < 0);
}

bool forward(const Loss& loss, const Places& places, Call& call) {
  Operands of;
  if (!read(loss, call, places, of)) return false;
  const c10::Device device = of.self.device();
  const c10::ScalarType dtype = of.self.scalar_type(), common = accumulated(dtype);
  const bool is_reduced = of.reduction != kNone;
  const at::IntArrayRef size = is_reduced ? at::IntArrayRef() : of.self.sizes();
  if (of.out.defined() && !can_become(of.out, size, dtype, {of.self, of.target, of.weight})) return false;
  c10::SmallVector<at::Tensor, 3> inputs{of.self, of.target};
  if (of.weight.defined()) inputs.push_back(of.weight);
  const Literal text = of.weight.defined() ? kWeighted : loss.text;
  if (is_reduced) {
    const at::Tensor values = empty(of.self.sizes(), common, device.index());
    const Output output(call, size, dtype, device);
    if (!apply(loss.name, values, inputs, text, {of.number}, common) || !fold_all(values, of.reduction, output.dense())) return false;
    output.give(call);
    return true;
  }
  if (!of.out.defined()) {
    const at::Tensor values = apply(loss.name, dtype, inputs, text, {of.number}, common);
    if (!values.defined()) return false;
    call.give(values);
    return true;
  }
  if (of.out.sizes() != size) of.out.resize_(size);
  if (!apply(loss.name, of.out, inputs, text, {of.number}, common)) return false;
  call.give(of.out);
  return true;
}

bool backward(const Loss& loss, const Places& places, Call& call) {
  Operands of;
  if (!read(loss, call, places, of)) return false;
  const at::Tensor& grad = call.tensor(places.grad);
  const c10::ScalarType dtype = of.self.scalar_type();
  if (!is_float(grad) || grad.scalar_type() != dtype || grad.device() != of.self.device()) return false;
  if (grad.dim() != 0 && grad.sizes() != of.self.sizes()) return false;
  if (of.out.defined() && !can_become(of.out, of.self.sizes(), dtype, {grad, of.self, of.target, of.weight})) return false;
  c10::SmallVector<at::Tensor, 4> inputs{grad, of.self, of.target};
  if (of.weight.defined()) inputs.push_back(of.weight);
  at::Tensor out = of.out;
  if (out.defined()) {
    if (out.sizes() != of.self.sizes()) out.resize_(of.self.sizes());
  } else if (!loss.has_weight || !of.self.is_non_overlapping_and_dense()) {
    out = empty(of.self.sizes(), dtype, of.self.device().index());
  } else {
    out = empty_strided(of.self.sizes(), of.self.strides(), dtype, of.self.device().index());
  }
  const double share = of.reduction == kMean ? 1.0 / static_cast<double>(of.self.numel()) : 1.0;
  const Literal text = of.weight.defined() ? kWeightedGradient : loss.gradient;
  if (!apply(loss.name, out, inputs, text, {of.number, share}, accumulated(dtype))) return false;
  call.give(out);
  return true;
}

// ---- negative log likelihood ----

struct Nll {
  at::Tensor self, target, weight;
  int64_t reduction, ignored;
  int64_t samples, classes, inner;
};

// Reads (self, target, weight, reduction, ignore_index) from `first` on. False: invalid or unsupported shapes.
bool read_nll(const Call& given, size_t first, bool is_2d, Nll& call) {
  call.self = given.tensor(first);
  call.target = given.tensor(first + 1);
  call.weight = given.tensor_or_none(first + 2);
  call.reduction = given[first + 3].toInt();
  call.ignored = given[first + 4].toInt();
  const at::Tensor &self = call.self, &target = call.target;
  if (!is_float(self) || self.numel() == 0 || !is_usable(target) || target.device() != self.device()) return false;
  if (target.scalar_type() != c10::kLong && target.scalar_type() != c10::kByte) return false;
  if (call.reduction < kNone || call.reduction > kSum) return false;
  if (is_2d) {
    if (self.dim() != 4 || target.dim() != 3 || target.size(0) != self.size(0) || target.sizes().slice(1) != self.sizes().slice(2)) {
      return false;
    }
  } else if (self.dim() == 2 ? target.dim() != 1 || target.size(0) != self.size(0) : self.dim() != 1 || target.dim() != 0) {
    return false;
  }
  call.samples = self.dim() == 1 ? 1 : self.size(0);
  call.classes = self.dim() == 1 ? self.size(0) : self.size(1);
  call.inner = self.numel() / (call.samples * call.classes);
  if (!call.weight.defined()) return true;
  if (!is_float(call.weight) || call.weight.dim() != 1 || call.weight.numel() != call.classes) return false;
  return call.weight.scalar_type() == self.scalar_type() && call.weight.device() == self.device();
}

// The operands of a launch; undefined where there are none.
struct NllOperands {
  at::Tensor out, weights, x, target, grad, total, weight;
};

bool launch(const Nll& call, const NllOperands& operands, c10::ScalarType common) {
  const c10::DeviceIndex device = call.self.device().index();
  const Target& target = target_of(device);
  const bool is_forward = !operands.grad.defined(), is_wide = has_wide_extent(target, call.self.numel());
  const bool is_one_grad = !is_forward && operands.grad.dim() == 0;
  const uint32_t per_item = target.is_host() ? 256 : 1;
  Unit unit(device, "nll.bpc", "nll", is_forward ? Literal("nll_loss") : Literal("nll_loss_backward"));
  unit.compute_in(common).op(is_forward ? Literal("forward") : Literal("backward")).index(is_wide);
  Arguments arguments;
  const auto write = [&](const at::Tensor& tensor, Literal name) {
    if (!tensor.defined()) return;
    unit.write(name, tensor.scalar_type());
    arguments.write(tensor);
  };
  const auto read = [&](const at::Tensor& tensor, Literal name) {
    if (!tensor.defined()) return;
    unit.read(name, tensor.scalar_type());
    arguments.read(tensor);
  };
  write(operands.out, "out");
  write(operands.weights, "weights");
  read(operands.x, "x");
  read(operands.target, "target");
  read(operands.grad, "grad");
  read(operands.total, "total");
  read(operands.weight, "w");
  unit.record();
  arguments.add(report_record(device));
  unit.store("STORE(i, v)", operands.out.scalar_type(), "out, i, v");
  unit.define("TARGET(i)", "bp_load_", dialect_name(operands.target.scalar_type()), "(target, i)");
  const auto element = [&](Literal word, const at::Tensor& tensor, Literal place) {
    if (tensor.defined()) {
      unit.load(word, tensor.scalar_type(), place);
    } else {
      unit.define(word, "(C)1");
    }
  };
  element("W(i)", operands.weight, "w, i");
  if (is_forward) {
    element("X(i)", operands.x, "x, i");
    unit.define("OF_WEIGHTS(...)", operands.weights.defined() ? Literal("__VA_ARGS__") : Literal(""));
  } else {
    element("G(i)", operands.grad, is_one_grad ? Literal("grad, 0") : Literal("grad, i"));
    element("TOTAL", operands.total, "total, 0");
  }
  const Function* function = unit.find(per_item, 5);
  if (function == nullptr) return false;
  const int64_t count = call.samples * call.inner;
  arguments.words(count, call.classes, call.inner, call.ignored);
  arguments.add(report_site("nll_loss"));
  launch_function(device, *function, static_cast<uint64_t>(count) / (uint64_t{function->group} * per_item) + 1, arguments);
  raise_visible_reports(device);
  return true;
}

bool nll_forward(Call& given, bool is_2d) {
  Nll call{};
  if (!read_nll(given, 0, is_2d, call)) return false;
  const c10::Device device = call.self.device();
  const c10::ScalarType dtype = call.self.scalar_type(), common = accumulated(dtype);
  const bool is_reduced = call.reduction != kNone;
  const at::IntArrayRef size = is_reduced ? at::IntArrayRef() : call.target.sizes();
  if (const at::Tensor* const out = given.given(0, 2)) {
    const at::Tensor& total_out = *given.given(1, 2);
    if (!can_become(*out, size, dtype, {call.self, call.target, call.weight}) ||
        !can_become(total_out, {}, dtype, {call.self, call.target, call.weight, *out})) {
      return false;
    }
  }
  const Output output(given, size, dtype, device, 0, 2), total(given, {}, dtype, device, 1, 2);
  NllOperands operands;
  operands.x = call.self.contiguous();
  operands.target = call.target.contiguous();
  if (call.weight.defined()) operands.weight = call.weight.contiguous();
  if (!is_reduced) {
    operands.out = output.dense();
    if (!launch(call, operands, common)) return false;
    total.dense().zero_();
  } else {
    operands.out = empty(call.target.sizes(), common, device.index());
    operands.weights = empty(call.target.sizes(), common, device.index());
    const at::Tensor loss = empty({}, common, device.index()), weights = empty({}, common, device.index());
    if (!launch(call, operands, common) || !fold_all(operands.out, kSum, loss) || !fold_all(operands.weights, kSum, weights)) return false;
    const Literal text = call.reduction == kMean ? Literal("x / y") : Literal("x");
    if (!apply("nll_loss", output.dense(), {loss, weights}, text, {}, common)) return false;
    total.dense().copy_(weights);
  }
  output.give(given);
  total.give(given);
  return true;
}

// grad_output, self, target, weight, reduction, ignore_index, total_weight
bool nll_backward(Call& given, bool is_2d) {
  Nll call{};
  const at::Tensor &grad = given.tensor(0), &total = given.tensor(6);
  if (!read_nll(given, 1, is_2d, call)) return false;
  const c10::ScalarType dtype = call.self.scalar_type();
  const bool is_reduced = call.reduction != kNone;
  if (!is_float(grad) || grad.scalar_type() != dtype || grad.device() != call.self.device()) return false;
  if (is_reduced ? grad.dim() != 0 : grad.sizes() != call.target.sizes()) return false;
  if (!is_float(total) || total.numel() != 1 || total.device() != call.self.device()) return false;
  const at::Tensor* const out = given.given();
  if (out != nullptr && !can_become(*out, call.self.sizes(), dtype, {grad, call.self, call.target, call.weight, total})) return false;
  const Output output(given, call.self.sizes(), dtype, call.self.device());
  output.dense().zero_();
  NllOperands operands;
  operands.out = output.dense();
  operands.target = call.target.contiguous();
  operands.grad = grad.contiguous();
  if (call.reduction == kMean) operands.total = total;
  if (call.weight.defined()) operands.weight = call.weight.contiguous();
  if (!launch(call, operands, accumulated(dtype))) return false;
  output.give(given);
  return true;
}

using OfLoss = bool(const Loss&, const Places&, Call&);

void add_loss(DefaultKernels& kernels, const Loss& loss, const std::string& form, OfLoss* compute, KernelCounter& counter) {
  const auto kernel = [&loss, compute, places = Places(detail::find_operator(form.c_str()).schema(), loss.number)](Call& call) {
    return compute(loss, places, call);
  };
  add_operator(kernels, form.c_str(), kernel, counter);
}

const Defaults registered([](DefaultKernels& kernels) {
  for (const Loss& loss : kLosses) {
    KernelCounter& of_loss = portable_counter(loss.name);
    for (const char* overload : {"", ".out"}) add_loss(kernels, loss, join(loss.name, overload), &forward, of_loss);
    const std::string gradient = join(loss.name, "_backward");
    KernelCounter& of_gradient = portable_counter(gradient.c_str());
    const bool is_made_of_out = loss.number != nullptr;  // torch generates the functional form
    add_loss(kernels, loss, join(gradient, gradient == "huber_loss_backward" ? ".out" : ".grad_input"), &backward, of_gradient);
    if (!is_made_of_out) add_loss(kernels, loss, gradient, &backward, of_gradient);
  }
  const auto of = [](auto* compute, bool is_2d) { return [=](Call& call) { return compute(call, is_2d); }; };
  add_operator(kernels, {"nll_loss_forward", "nll_loss_forward.output"}, of(&nll_forward, false));
  add_operator(kernels, {"nll_loss2d_forward", "nll_loss2d_forward.output"}, of(&nll_forward, true));
  add_operator(kernels, {"nll_loss_backward", "nll_loss_backward.grad_input"}, of(&nll_backward, false));
  add_operator(kernels, {"nll_loss2d_backward", "nll_loss2d_backward.grad_input"}, of(&nll_backward, true));
});

}  // namespace
}  // namespace losses_impl
}  // namespace backplane::portable
