// kernels/portable/losses.cpp: losses of two tensors (mse, smooth l1, huber, binary cross entropy) and the negative log likelihood, with
// their reductions and backwards.
//
// A loss is an expression of elements; its mean or sum is that of a temporary, which for half types is in float32. Where the CPU raises an
// error for a value, a probability beyond 0 and 1 or a class that there is not, the result is NaN.
#include <backplane/structured.h>

#include <string>

#include "kernels/portable/family.h"
#include "kernels/portable/reduce.h"
#include "kernels/portable/text.h"
#include "modules/target.h"
#include "runtime/reports.h"

namespace backplane::portable {
namespace losses_impl {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

bool is_float(const at::Tensor& tensor) { return can_walk(tensor) && c10::isFloatingType(tensor.scalar_type()); }

bool is_alike(const at::Tensor& tensor, const at::Tensor& input) {
  return is_float(tensor) && tensor.device() == input.device() && tensor.scalar_type() == input.scalar_type() &&
         tensor.sizes() == input.sizes();
}

// The sum or mean of all elements, in `result`.
bool fold_all(const at::Tensor& values, int64_t reduction, const at::Tensor& result) {
  static KernelSlots sums;
  static KernelSlots means;
  DimMask all;
  for (int64_t d = 0; d < values.dim(); ++d) all.set(static_cast<size_t>(d));
  const FoldCall call{values, all, values.scalar_type()};
  return reduction == kMean ? fold({"mean"}, call, {result}, means) : fold({"sum"}, call, {result}, sums);
}

// ---- of two tensors ----

struct Loss {
  const char* name;
  const char* text;      // of x, the target y, a weight z if there is one, and the number s0
  const char* gradient;  // of the result's gradient x, the input y, the target z, a weight w, the number s0, and s1: 1 or 1 / count
  const char* number;    // the argument that is s0
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
constexpr const char* kWeighted = "((y - (C)1) * m_log_bounded(m_log1p(-x)) - y * m_log_bounded(m_log(x))) * z";
constexpr const char* kWeightedGradient = "x * (y - z) / m_odds_divisor(y) * w * s1";

// Where the arguments of a form are; -1: it has none.
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

struct Kernel {
  Kernel(const Loss& loss, const char* name) : loss(loss), counter(portable_counter(name)) {}
  const Loss& loss;
  KernelCounter& counter;
  KernelSlots slots;
};

// What both directions have.
struct Call {
  at::Tensor self, target, weight, out;
  int64_t reduction;
  double number = 0;
};

bool read(const Loss& loss, const c10::IValue* a, const Places& p, Call& call) {
  call.self = a[p.self].toTensor();
  call.target = a[p.target].toTensor();
  call.reduction = a[p.reduction].toInt();
  if (p.weight >= 0) call.weight = tensor_of(a[p.weight]);
  if (p.out >= 0) call.out = a[p.out].toTensor();
  if (!is_float(call.self) || call.self.numel() == 0 || !is_alike(call.target, call.self)) return false;
  if (call.weight.defined() && !is_alike(call.weight, call.self)) return false;
  if (call.reduction < kNone || call.reduction > kSum) return false;
  if (p.number < 0) return true;
  call.number = a[p.number].toDouble();
  return call.number > 0 || (call.number == 0 && loss.number == std::string_view("beta") && p.grad < 0);
}

Compute forward(Kernel& kernel, const char* form) {
  return [&kernel, p = Places(detail::find_operator(form).schema(), kernel.loss.number)](const c10::IValue* a, Results& results) {
    Call call;
    if (!read(kernel.loss, a, p, call)) return false;
    const c10::DeviceIndex device = call.self.device().index();
    const c10::ScalarType dtype = call.self.scalar_type(), common = accumulated(dtype);
    const bool is_reduced = call.reduction != kNone;
    const at::IntArrayRef size = is_reduced ? at::IntArrayRef() : call.self.sizes();
    if (call.out.defined() && !can_become(call.out, size, dtype, {call.self, call.target, call.weight})) return false;
    c10::SmallVector<at::Tensor, 3> inputs{call.self, call.target};
    if (call.weight.defined()) inputs.push_back(call.weight);
    const char* const text = call.weight.defined() ? kWeighted : kernel.loss.text;
    const int variant = call.weight.defined() ? 1 : 0;
    at::Tensor values;
    if (is_reduced) {
      values = empty(call.self.sizes(), common, device);
    } else if (call.out.defined()) {
      if (call.out.sizes() != size) call.out.resize_(size);
      values = call.out;
    }
    if (values.defined()) {
      if (!apply(kernel.loss.name, values, inputs, text, variant, {call.number}, common, kernel.slots)) return false;
    } else {
      values = apply(kernel.loss.name, dtype, inputs, text, variant, {call.number}, common, kernel.slots);
      if (!values.defined()) return false;
    }
    if (is_reduced) {
      const Output output(call.out, size, dtype, device);
      if (!fold_all(values, call.reduction, output.dense())) return false;
      values = output.finish();
    }
    kernel.counter.count();
    results.push_back(values);
    return true;
  };
}

Compute backward(Kernel& kernel, const char* form) {
  return [&kernel, p = Places(detail::find_operator(form).schema(), kernel.loss.number)](const c10::IValue* a, Results& results) {
    Call call;
    if (!read(kernel.loss, a, p, call)) return false;
    const at::Tensor& grad = a[p.grad].toTensor();
    const c10::ScalarType dtype = call.self.scalar_type();
    if (!is_float(grad) || grad.scalar_type() != dtype || grad.device() != call.self.device()) return false;
    if (grad.dim() != 0 && grad.sizes() != call.self.sizes()) return false;
    if (call.out.defined() && !can_become(call.out, call.self.sizes(), dtype, {grad, call.self, call.target, call.weight})) return false;
    c10::SmallVector<at::Tensor, 4> inputs{grad, call.self, call.target};
    if (call.weight.defined()) inputs.push_back(call.weight);
    at::Tensor out = call.out;
    if (out.defined()) {
      if (out.sizes() != call.self.sizes()) out.resize_(call.self.sizes());
    } else if (!kernel.loss.has_weight || !call.self.is_non_overlapping_and_dense()) {
      out = empty(call.self.sizes(), dtype, call.self.device().index());
    } else {
      out = empty_strided(call.self.sizes(), call.self.strides(), dtype, call.self.device().index());
    }
    const double share = call.reduction == kMean ? 1.0 / static_cast<double>(call.self.numel()) : 1.0;
    const char* const text = call.weight.defined() ? kWeightedGradient : kernel.loss.gradient;
    if (!apply(kernel.loss.name, out, inputs, text, call.weight.defined() ? 3 : 2, {call.number, share}, accumulated(dtype),
               kernel.slots)) {
      return false;
    }
    kernel.counter.count();
    results.push_back(out);
    return true;
  };
}

// ---- negative log likelihood ----

struct Nll {
  at::Tensor self, target, weight;
  int64_t reduction, ignored;
  int64_t samples, classes, inner;
};

// (self, target, weight, reduction, ignore_index) from `first` on. False: shapes that are not so, or the CPU's.
bool read_nll(const c10::IValue* first, bool is_2d, Nll& call) {
  call.self = first[0].toTensor();
  call.target = first[1].toTensor();
  call.weight = tensor_of(first[2]);
  call.reduction = first[3].toInt();
  call.ignored = first[4].toInt();
  const at::Tensor &self = call.self, &target = call.target;
  if (!is_float(self) || self.numel() == 0 || !can_walk(target) || target.device() != self.device()) return false;
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

bool launch(const Nll& call, const NllOperands& operands, c10::ScalarType common, KernelSlots& slots) {
  const c10::DeviceIndex device = call.self.device().index();
  const Target& target = target_of(device);
  const bool is_forward = !operands.grad.defined(), is_wide = has_wide_extent(target, call.self.numel());
  const bool is_one_grad = !is_forward && operands.grad.dim() == 0;
  uint64_t key = static_cast<uint64_t>(device) & 63;
  for (const at::Tensor* tensor : {&operands.out, &operands.weights, &operands.x, &operands.target, &operands.total, &operands.weight}) {
    key = key << 4 | (tensor->defined() ? dtype_bits(tensor->scalar_type()) : kNoDtype);
  }
  key = (key << 4 | dtype_bits(common)) << 3 | (is_forward ? 4u : 0u) | (is_one_grad ? 2u : 0u) | (is_wide ? 1u : 0u);
  const uint32_t per_item = target.is_host() ? 256 : 1;
  const auto make = [&] {
    Definitions text;
    text.compute_in(compute_type(common));
    text.add(is_forward ? "OP_forward" : "OP_backward", 1);
    std::string parameters;
    uint32_t pointers = 0;
    const auto operand = [&](const at::Tensor& tensor, const char* name, bool is_written) {
      if (!tensor.defined()) return;
      append(parameters, pointers == 0 ? "" : ", ", "BP_GLOBAL ", is_written ? "" : "const ", memory_type(tensor.scalar_type()),
             "* BP_RESTRICT ", name);
      ++pointers;
    };
    operand(operands.out, "out", true);
    operand(operands.weights, "weights", true);
    operand(operands.x, "x", false);
    operand(operands.target, "target", false);
    operand(operands.grad, "grad", false);
    operand(operands.total, "total", false);
    operand(operands.weight, "w", false);
    text.add("POINTERS", pointers + 1);
    text.add("PARAMETERS", parameters, ", BP_GLOBAL i64* BP_RESTRICT record");
    text.add("STORE(i, v)", "bp_store_", dialect_name(operands.out.scalar_type()), "(out, i, v)");
    text.add("TARGET(i)", load_text(operands.target.scalar_type(), "target, i"));
    text.add("W(i)", operands.weight.defined() ? load_text(operands.weight.scalar_type(), "w, i") : "(C)1");
    if (is_forward) {
      text.add("X(i)", load_text(operands.x.scalar_type(), "x, i"));
      text.add("OF_WEIGHTS(...)", operands.weights.defined() ? "__VA_ARGS__" : "");
    } else {
      text.add("G(i)", load_text(operands.grad.scalar_type(), is_one_grad ? "grad, 0" : "grad, i"));
      text.add("TOTAL", operands.total.defined() ? load_text(operands.total.scalar_type(), "total, 0") : "(C)1");
    }
    text.add("IDX", is_wide ? "i64" : "i32");
    KernelSource source;
    source.name = join(is_forward ? "nll_loss[" : "nll_loss_backward[", dialect_name(call.self.scalar_type()), "]");
    source.definitions = text.text();
    source.files = {"math.bpc", "compute.bpc", "nll.bpc"};
    source.kernel = "nll";
    source.per_item = per_item;
    source.signature.struct_size = sizeof source.signature;
    source.signature.pointers = pointers + 1;
    source.signature.value_bytes = 40;
    source.signature.written = (operands.weights.defined() ? 3u : 1u) | uint64_t{1} << pointers;
    return source;
  };
  const Function* function = slots.find(key, device, make);
  if (function == nullptr) return false;
  KernelArguments arguments;
  for (const at::Tensor* tensor :
       {&operands.out, &operands.weights, &operands.x, &operands.target, &operands.grad, &operands.total, &operands.weight}) {
    if (tensor->defined()) arguments.add(address_of(*tensor));
  }
  arguments.add(report_record(device));
  const int64_t count = call.samples * call.inner;
  for (const int64_t word : {count, call.classes, call.inner, call.ignored}) arguments.add(word);
  arguments.add(report_site("nll_loss"));
  launch_function(device, *function, static_cast<uint64_t>(count) / (uint64_t{function->group} * per_item) + 1, arguments);
  raise_visible_reports(device);
  return true;
}

Compute nll_forward(KernelCounter& counter, bool is_2d, bool has_out) {
  return [&counter, is_2d, has_out](const c10::IValue* a, Results& results) {
    static KernelSlots slots;
    static KernelSlots quotients;
    Nll call{};
    if (!read_nll(a, is_2d, call)) return false;
    const c10::DeviceIndex device = call.self.device().index();
    const c10::ScalarType dtype = call.self.scalar_type(), common = accumulated(dtype);
    const bool is_reduced = call.reduction != kNone;
    const at::IntArrayRef size = is_reduced ? at::IntArrayRef() : call.target.sizes();
    const at::Tensor out = has_out ? a[5].toTensor() : at::Tensor(), total_out = has_out ? a[6].toTensor() : at::Tensor();
    if (has_out && (!can_become(out, size, dtype, {call.self, call.target, call.weight}) ||
                    !can_become(total_out, {}, dtype, {call.self, call.target, call.weight, out}))) {
      return false;
    }
    const Output output(out, size, dtype, device), total(total_out, {}, dtype, device);
    NllOperands operands;
    operands.x = call.self.contiguous();
    operands.target = call.target.contiguous();
    if (call.weight.defined()) operands.weight = call.weight.contiguous();
    if (!is_reduced) {
      operands.out = output.dense();
      if (!launch(call, operands, common, slots)) return false;
      total.dense().zero_();
    } else {
      operands.out = empty(call.target.sizes(), common, device);
      operands.weights = empty(call.target.sizes(), common, device);
      const at::Tensor loss = empty({}, common, device), weights = empty({}, common, device);
      if (!launch(call, operands, common, slots) || !fold_all(operands.out, kSum, loss) || !fold_all(operands.weights, kSum, weights)) {
        return false;
      }
      const bool is_mean = call.reduction == kMean;
      if (!apply("nll_loss", output.dense(), {loss, weights}, is_mean ? "x / y" : "x", is_mean ? 1 : 0, {}, common, quotients)) {
        return false;
      }
      total.dense().copy_(weights);
    }
    counter.count();
    results = {output.finish(), total.finish()};
    return true;
  };
}

// (grad_output, self, target, weight, reduction, ignore_index, total_weight), and with grad_input.
Compute nll_backward(KernelCounter& counter, bool is_2d, bool has_out) {
  return [&counter, is_2d, has_out](const c10::IValue* a, Results& results) {
    static KernelSlots slots;
    Nll call{};
    const at::Tensor &grad = a[0].toTensor(), &total = a[6].toTensor();
    if (!read_nll(a + 1, is_2d, call)) return false;
    const c10::ScalarType dtype = call.self.scalar_type();
    const bool is_reduced = call.reduction != kNone;
    if (!is_float(grad) || grad.scalar_type() != dtype || grad.device() != call.self.device()) return false;
    if (is_reduced ? grad.dim() != 0 : grad.sizes() != call.target.sizes()) return false;
    if (!is_float(total) || total.numel() != 1 || total.device() != call.self.device()) return false;
    const at::Tensor out = has_out ? a[7].toTensor() : at::Tensor();
    if (has_out && !can_become(out, call.self.sizes(), dtype, {grad, call.self, call.target, call.weight, total})) return false;
    const Output output(out, call.self.sizes(), dtype, call.self.device().index());
    output.dense().zero_();
    NllOperands operands;
    operands.out = output.dense();
    operands.target = call.target.contiguous();
    operands.grad = grad.contiguous();
    if (call.reduction == kMean) operands.total = total;
    if (call.weight.defined()) operands.weight = call.weight.contiguous();
    if (!launch(call, operands, accumulated(dtype), slots)) return false;
    counter.count();
    results.push_back(output.finish());
    return true;
  };
}

const Defaults registered([](DefaultKernels& kernels) {
  for (const Loss& loss : kLosses) {
    const std::string& gradient = *new std::string(join(loss.name, "_backward"));
    auto& of_loss = *new Kernel(loss, loss.name);
    auto& of_gradient = *new Kernel(loss, gradient.c_str());
    for (const char* overload : {"", ".out"}) {
      const std::string form = join(loss.name, overload);
      impl(kernels, form.c_str(), forward(of_loss, form.c_str()));
    }
    const bool is_made_of_out = loss.number != nullptr;  // torch makes the functional form of the other
    const std::string out = join(gradient, gradient == "huber_loss_backward" ? ".out" : ".grad_input");
    impl(kernels, out.c_str(), backward(of_gradient, out.c_str()));
    if (!is_made_of_out) impl(kernels, gradient.c_str(), backward(of_gradient, gradient.c_str()));
  }
  for (const bool is_2d : {false, true}) {
    KernelCounter& of_loss = portable_counter(is_2d ? "nll_loss2d_forward" : "nll_loss_forward");
    KernelCounter& of_gradient = portable_counter(is_2d ? "nll_loss2d_backward" : "nll_loss_backward");
    impl(kernels, is_2d ? "nll_loss2d_forward" : "nll_loss_forward", nll_forward(of_loss, is_2d, false));
    impl(kernels, is_2d ? "nll_loss2d_forward.output" : "nll_loss_forward.output", nll_forward(of_loss, is_2d, true));
    impl(kernels, is_2d ? "nll_loss2d_backward" : "nll_loss_backward", nll_backward(of_gradient, is_2d, false));
    impl(kernels, is_2d ? "nll_loss2d_backward.grad_input" : "nll_loss_backward.grad_input", nll_backward(of_gradient, is_2d, true));
  }
});

}  // namespace
}  // namespace losses_impl
}  // namespace backplane::portable
