// kernels/portable/pointwise/foreach.cpp: operators of lists of tensors, which optimizers call: _foreach_add_ and others, fused Adam, AdamW
// and SGD. One launch covers as many tensors as its arguments hold. Lists of mixed dtypes, of views with gaps or of several devices are
// left to torch, which computes each tensor separately.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/unit.h"
#include "modules/launch.h"

namespace backplane::portable {
namespace foreach_impl {
namespace {

constexpr uint32_t kHostTile = 2048;
constexpr uint32_t kLanes = 4;
constexpr size_t kMostPointers = 64;

using Tensors = std::vector<at::Tensor>;

struct List {
  const Tensors* tensors;
  bool is_written;
};

struct TableCall {
  Literal name;
  c10::SmallVector<List, 6> lists;
  c10::SmallVector<at::Tensor, 2> shared{};      // q0, q1, ...: all tensors read them
  const std::vector<double>* numbers = nullptr;  // s0 of each tensor
  c10::SmallVector<double, 8> common{};          // f0, f1, ...
  std::string begin{}, setup{}, body{};          // in the words of table.bpc
};

// The tensors of all lists as parameters, and the kernel's selection among them.
struct Lists {
  uint32_t count, written;  // lists, and one bit for each that is written
  uint32_t tensors;         // per list
  uint32_t shared, common;
  uint16_t has_numbers, is_double;
};
void write_lists(KernelSource& source, const Lists& lists) {
  std::string parameters, pick, members, commons;
  for (uint32_t k = 0; k < lists.count; ++k) {
    const char* const is_const = (lists.written >> k & 1) != 0 ? "" : "const ";
    append(pick, "BP_GLOBAL ", is_const, "T", k, "* const a", k, " = ");
    for (uint32_t t = 0; t < lists.tensors; ++t) {
      if (t + 1 < lists.tensors) append(pick, "t == ", t, " ? ");
      append(pick, "p", t * lists.count + k, t + 1 < lists.tensors ? " : " : "; ");
    }
  }
  for (uint32_t p = 0; p < lists.tensors * lists.count; ++p) {
    const uint32_t k = p % lists.count;
    append(parameters, p == 0 ? "" : ", ", "BP_GLOBAL ", (lists.written >> k & 1) != 0 ? "" : "const ", "T", k, "* BP_RESTRICT p", p);
  }
  for (uint32_t k = 0; k < lists.shared; ++k) append(parameters, ", BP_GLOBAL const TQ", k, "* BP_RESTRICT q", k);
  for (uint32_t k = 0; k < lists.common; ++k) {
    members += lists.is_double != 0 ? join("f64 f", k, "; ") : join("f32 f", k, "; u32 f", k, "_; ");
    append(commons, "const C f", k, " = bp_arg.f", k, "; ");
  }
  if (lists.has_numbers != 0) members += lists.is_double != 0 ? "f64 numbers[TENSORS]; " : "f32 numbers[2 * TENSORS]; ";
  std::string& text = source.definitions;
  define(text, "NUMBER(t)", lists.is_double != 0 ? "bp_arg.numbers[t]" : "bp_arg.numbers[2 * (t)]");
  define(text, "TENSORS", lists.tensors);
  define(text, "PARAMETERS", parameters);
  define(text, "PICK", pick);
  define(text, "MEMBERS", members);
  define(text, "COMMONS", commons);
}

bool launch_table(const TableCall& what) {
  constexpr Literal kSuffixes[] = {"0", "1", "2", "3", "4", "5"}, kShared[] = {"Q0", "Q1"};
  const Tensors& first = *what.lists[0].tensors;
  const c10::ScalarType dtype = first[0].scalar_type();
  const c10::DeviceIndex device = first[0].device().index();
  const Target& target = target_of(device);
  const size_t lists = what.lists.size();
  const size_t shared = what.shared.size();
  const size_t numbers = what.numbers == nullptr ? 0 : 1;
  const size_t of_pointers = (kMostPointers - shared) / lists;
  const size_t of_bytes = (KernelArguments::kMost / 8 - shared - what.common.size()) / (2 + lists + numbers);
  const size_t most = std::min(of_pointers, of_bytes);
  const auto pointers = static_cast<uint32_t>(most * lists + shared);
  const uint32_t per_item = target.is_host() ? kHostTile : kLanes;
  Lists shape{static_cast<uint32_t>(lists),
              0,
              static_cast<uint32_t>(most),
              static_cast<uint32_t>(shared),
              static_cast<uint32_t>(what.common.size()),
              static_cast<uint16_t>(numbers),
              dtype == c10::kDouble};
  Unit unit(device, "table.bpc", "table", what.name);
  unit.compute_in(dtype);
  uint64_t written = 0;
  for (size_t k = 0; k < lists; ++k) {
    const List& list = what.lists[k];
    unit.element(kSuffixes[k], (*list.tensors)[0].scalar_type());
    if (!list.is_written) continue;
    shape.written |= 1u << k;
    for (size_t t = 0; t < most; ++t) written |= uint64_t{1} << (t * lists + k);
  }
  for (size_t k = 0; k < shared; ++k) unit.element(kShared[k], what.shared[k].scalar_type());
  unit.define("POINTERS", pointers).made_by(&write_lists, shape).define("BEGIN", "COMMONS ", what.begin);
  unit.define("SETUP", numbers != 0 ? Literal("const C s0 = NUMBER(t); ") : Literal(""), what.setup).define("APPLY(i)", what.body);
  const Function* function = unit.find(per_item, pointers, static_cast<uint32_t>(most * (2 + numbers) + what.common.size()), written);
  if (function == nullptr) return false;
  const int64_t tile = static_cast<int64_t>(function->group) * per_item;
  for (size_t begin = 0; begin < first.size(); begin += most) {
    const size_t count = std::min(most, first.size() - begin);
    Arguments arguments;
    for (size_t t = 0; t < most; ++t) {
      for (const List& list : what.lists) {
        const at::Tensor& tensor = (*list.tensors)[begin + (t < count ? t : 0)];
        arguments.add(list.is_written ? writable_address_of(tensor) : address_of(tensor));
      }
    }
    for (const at::Tensor& tensor : what.shared) arguments.read(tensor);
    int64_t tiles = 0;
    for (size_t t = 0; t < most; ++t) {
      if (t < count) tiles += (first[begin + t].numel() + tile - 1) / tile;
      arguments.words(tiles);
    }
    for (size_t t = 0; t < most; ++t) arguments.words(t < count ? first[begin + t].numel() : 0);
    for (const double number : what.common) arguments.add(word_of(number, dtype));
    for (size_t t = 0; t < most && numbers != 0; ++t) arguments.add(word_of(t < count ? (*what.numbers)[begin + t] : 0, dtype));
    if (tiles != 0) launch_function(device, *function, static_cast<uint64_t>(tiles), arguments);
  }
  return true;
}

// Whether a list matches another: one dtype, one device, dense, and equal strides of corresponding tensors.
bool is_alike(const Tensors& list, const Tensors& like, c10::ScalarType dtype) {
  if (list.size() != like.size()) return false;
  for (size_t k = 0; k < list.size(); ++k) {
    const at::Tensor& tensor = list[k];
    if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.scalar_type() != dtype || tensor.device() != like[0].device() ||
        !tensor.is_non_overlapping_and_dense() || tensor.sizes() != like[k].sizes() || tensor.strides() != like[k].strides()) {
      return false;
    }
  }
  return true;
}

bool takes_list(const Tensors& list) {
  return !list.empty() && is_usable(list[0]) && c10::isFloatingType(list[0].scalar_type()) && is_alike(list, list, list[0].scalar_type());
}

// --- _foreach_... ---

struct Line {
  Literal name;            // "_foreach_add"
  const char* of_lists;    // with tensors, and s0 if the schema also has a number; NULL: no such forms
  const char* of_numbers;  // with a number for each tensor
};

// In the order of the arguments: lists x, y, z; a one-element tensor y; numbers s0.
const Line kLines[] = {
    {"_foreach_add", "x + s0 * y", "x + s0"},
    {"_foreach_sub", "x - s0 * y", "x - s0"},
    {"_foreach_mul", "x * y", "x * s0"},
    {"_foreach_div", "x / y", "x / s0"},
    {"_foreach_maximum", "m_max(x, y)", "m_max(x, s0)"},
    {"_foreach_minimum", "m_min(x, y)", "m_min(x, s0)"},
    {"_foreach_clamp_min", "m_max(x, y)", "m_max(x, s0)"},
    {"_foreach_clamp_max", "m_min(x, y)", "m_min(x, s0)"},
    {"_foreach_addcmul", nullptr, "x + s0 * y * z"},
    {"_foreach_addcdiv", nullptr, "x + s0 * (y / z)"},
    {"_foreach_lerp", "m_fabs(z) < LIT(0.5) ? x + z * (y - x) : y - (y - x) * ((C)1 - z)",
     "m_fabs(s0) < LIT(0.5) ? x + s0 * (y - x) : y - (y - x) * ((C)1 - s0)"},
    {"_foreach_sqrt", "m_sqrt(x)", nullptr},
    {"_foreach_rsqrt", "(C)1 / m_sqrt(x)", nullptr},
    {"_foreach_neg", "-x", nullptr},
    {"_foreach_abs", "m_fabs(x)", nullptr},
    {"_foreach_reciprocal", "(C)1 / x", nullptr},
    {"_foreach_exp", "m_exp(x)", nullptr},
    {"_foreach_zero", "(C)0", nullptr},
    {"_foreach_copy", "y", nullptr},
};

bool read_numbers(const c10::IValue& value, size_t count, std::vector<double>& numbers) {
  const auto add = [&](const c10::Scalar& scalar) {
    if (scalar.isComplex() || scalar.isBoolean()) return false;
    numbers.push_back(scalar.to<double>());
    return true;
  };
  if (value.isTensor()) {  // on the host: a number for each tensor
    const at::Tensor& tensor = value.toTensor();
    if (tensor.device().type() != c10::kCPU || tensor.dim() != 1 || tensor.numel() != static_cast<int64_t>(count) || tensor.is_complex())
      return false;
    for (int64_t k = 0; k < tensor.numel(); ++k) add(tensor.select(0, k).item());
    return true;
  }
  if (value.isList()) {
    const auto list = value.toListRef();
    if (list.size() != count) return false;
    for (const c10::IValue& element : list) {
      if (!add(element.toScalar())) return false;
    }
    return true;
  }
  if (!value.isScalar() || value.isComplexDouble() || !add(value.toScalar())) return false;
  numbers.resize(count, numbers[0]);
  return true;
}

bool foreach (Call& call, const Line& line) {
  std::vector<Tensors> lists;
  lists.reserve(3);
  std::vector<double> numbers;
  TableCall what{line.name, {}};
  bool has_tensor = false;
  for (size_t i = 0; i < call.size(); ++i) {
    const c10::IValue& value = call[i];
    if (value.isTensorList()) {
      lists.push_back(value.toTensorVector());
      continue;
    }
    if (lists.empty() || lists[0].empty()) return false;
    if (value.isTensor() && value.toTensor().dim() == 0 && lists.size() == 1) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.scalar_type() != lists[0][0].scalar_type() || tensor.device() != lists[0][0].device()) return false;
      what.shared.push_back(tensor);
      has_tensor = true;
    } else if (value.isBool() && std::string_view(line.name) == "_foreach_copy") {
      continue;
    } else if (!read_numbers(value, lists[0].size(), numbers)) {
      return false;
    }
  }
  if (!takes_list(lists[0])) return false;
  const c10::ScalarType dtype = lists[0][0].scalar_type();
  for (const Tensors& list : lists) {
    if (!is_alike(list, lists[0], dtype)) return false;
  }
  // Forms with lists for all operands, or with numbers for the last.
  const std::string_view of_lists = line.of_lists == nullptr ? "" : line.of_lists;
  const size_t wants = of_lists.find('z') != std::string_view::npos ? 3 : of_lists.find('y') != std::string_view::npos ? 2 : 1;
  const bool by_lists = line.of_lists != nullptr && lists.size() + (has_tensor ? 1 : 0) == wants;
  const char* expression = by_lists ? line.of_lists : line.of_numbers;
  if (expression == nullptr) return false;
  const bool is_inplace = call.form() == Call::Form::inplace;
  Tensors results;
  if (!is_inplace) {
    for (const at::Tensor& tensor : lists[0]) results.push_back(at::empty_like(tensor));
    what.lists.push_back({&results, true});
  }
  const size_t first = what.lists.size();
  const bool reads_numbers = std::string_view(expression).find("s0") != std::string_view::npos;
  if (reads_numbers && numbers.empty()) return false;
  if (reads_numbers) what.numbers = &numbers;
  const char* const letters[] = {"x", "y", "z"};
  std::string body = "{ ";
  for (size_t k = 0; k < lists.size(); ++k) {
    what.lists.push_back({&lists[k], is_inplace && k == 0});
    append(body, "const C ", letters[k], " = LOAD", first + k, "(a", first + k, ", i); ");
  }
  if (has_tensor) what.begin = "const C y = LOADQ0(q0, 0);";
  what.body = join(body, "STORE0(a0, i, (", expression, ")); }");
  if (!launch_table(what)) return false;
  if (!is_inplace) call.give(c10::IValue(results));
  return true;
}

void add_line(DefaultKernels& kernels, const Line& line) {
  for (const char* overload : {"", ".List", ".Scalar", ".ScalarList", ".Tensor"}) {
    for (const char* suffix : {"", "_"}) {
      const std::string name = join(line.name, suffix);
      if (!c10::Dispatcher::singleton().findSchema({join("aten::", name), *overload == 0 ? "" : overload + 1})) continue;
      const std::string full = join(name, overload);
      add_operator(kernels, {full.c_str()}, [&line](Call& call) { return foreach (call, line); });
    }
  }
}

// --- fused optimizers ---

// grad_scale and found_inf, which may be None: pointers after the lists.
bool add_scaler(const Call& call, size_t scale, const at::Tensor& like, TableCall& what, bool& has_scale, bool& has_inf) {
  const auto add = [&](size_t i, bool& has) {
    has = call.has(i) && call.tensor(i).defined();
    if (!has) return true;
    const at::Tensor& tensor = call.tensor(i);
    if (tensor.scalar_type() != c10::kFloat || tensor.device() != like.device() || tensor.numel() != 1) return false;
    what.shared.push_back(tensor);
    return true;
  };
  if (!add(scale, has_scale) || !add(scale + 1, has_inf)) return false;
  if (has_inf) append(what.begin, "if (q", has_scale ? 1 : 0, "[0] != 0.0f) return; ");  // the scaler found an infinite gradient: no step
  if (has_scale) what.begin += "const C unscale = (C)1 / (C)q0[0]; ";
  return true;
}

// self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, grad_scale,
// found_inf
bool adam(Call& call, bool is_decoupled) {
  std::vector<Tensors> lists;
  for (size_t i = 0; i < 6; ++i) lists.push_back(call[i].toTensorVector());
  const Tensors& self = lists[0];
  if (!takes_list(self)) return false;
  const c10::ScalarType dtype = self[0].scalar_type();
  const bool amsgrad = call[11].toBool(), maximize = call[12].toBool();
  for (size_t i = 1; i < (amsgrad ? 5 : 4); ++i) {
    if (!is_alike(lists[i], self, dtype)) return false;
  }
  if (lists[5].size() != self.size()) return false;
  for (const at::Tensor& step : lists[5]) {
    if (step.scalar_type() != c10::kFloat || step.device() != self[0].device() || step.numel() != 1) return false;
  }
  double lr = 0;
  if (call[6].isTensor()) {
    if (call.tensor(6).device().type() != c10::kCPU) return false;
    lr = call.tensor(6).item().toDouble();
  } else {
    lr = call[6].toDouble();
  }
  const double beta1 = call[7].toDouble(), beta2 = call[8].toDouble(), decay = call[9].toDouble(), eps = call[10].toDouble();
  if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1)) return false;
  TableCall what{is_decoupled ? Literal("_fused_adamw_") : Literal("_fused_adam_"),
                 {{&self, true}, {&lists[1], true}, {&lists[2], true}, {&lists[3], true}, {&lists[5], false}}};
  if (amsgrad) what.lists.push_back({&lists[4], true});
  bool has_scale = false, has_inf = false;
  if (!add_scaler(call, 13, self[0], what, has_scale, has_inf)) return false;
  // 1 - beta^step without a power: f8 and f9 are logarithms.
  const double sign = maximize ? -1 : 1;
  what.common = {lr,
                 beta1,
                 1 - beta1,
                 beta2,
                 1 - beta2,
                 eps,
                 is_decoupled ? 1 - lr * decay : 1,
                 is_decoupled ? 0 : decay,
                 std::log(beta1),
                 std::log(beta2),
                 sign};
  what.setup =
      "const C taken = (C)a4[0]; const C step_size = f0 / -m_expm1(taken * f8); const C correction = m_sqrt(-m_expm1(taken * f9)); ";
  what.body = join("{ C g = LOAD1(a1, i)", has_scale ? " * unscale; STORE1(a1, i, g); " : "; ",
                   "const C x = LOAD0(a0, i); g = f10 * g + f7 * x; const C m = f1 * LOAD2(a2, i) + f2 * g; "
                   "C v = f3 * LOAD3(a3, i) + f4 * g * g; STORE2(a2, i, m); STORE3(a3, i, v); ",
                   amsgrad ? "const C top = LOAD5(a5, i); v = top > v ? top : v; STORE5(a5, i, v); " : "",
                   "STORE0(a0, i, f6 * x - step_size * m / (m_sqrt(v) / correction + f5)); }");
  return launch_table(what);
}

// self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step, grad_scale, found_inf
bool sgd(Call& call) {
  std::vector<Tensors> lists;
  for (size_t i = 0; i < 3; ++i) lists.push_back(call[i].toTensorVector());
  const Tensors& self = lists[0];
  if (!takes_list(self) || !is_alike(lists[1], self, self[0].scalar_type())) return false;
  const double decay = call[3].toDouble(), momentum = call[4].toDouble(), dampening = call[6].toDouble();
  double lr = 0;
  if (call[5].isTensor()) {
    if (call.tensor(5).device().type() != c10::kCPU) return false;
    lr = call.tensor(5).item().toDouble();
  } else {
    lr = call[5].toDouble();
  }
  const bool nesterov = call[7].toBool(), maximize = call[8].toBool(), is_first = call[9].toBool();
  const bool has_momentum = !lists[2].empty() && momentum != 0;
  if (has_momentum && !is_alike(lists[2], self, self[0].scalar_type())) return false;
  TableCall what{"_fused_sgd_", {{&self, true}, {&lists[1], true}}};
  if (has_momentum) what.lists.push_back({&lists[2], true});
  bool has_scale = false, has_inf = false;
  if (!add_scaler(call, 10, self[0], what, has_scale, has_inf)) return false;
  what.common = {lr, decay, momentum, 1 - dampening, maximize ? -1.0 : 1.0};
  what.body =
      join("{ C g = LOAD1(a1, i)", has_scale ? " * unscale; STORE1(a1, i, g); " : "; ", "const C x = LOAD0(a0, i); g = f4 * g + f1 * x; ");
  if (has_momentum) {
    what.body += is_first ? "const C b = g; " : "const C b = f2 * LOAD2(a2, i) + f3 * g; ";
    what.body += nesterov ? "STORE2(a2, i, b); g = g + f2 * b; " : "STORE2(a2, i, b); g = b; ";
  }
  what.body += "STORE0(a0, i, x - f0 * g); }";
  return launch_table(what);
}

const Defaults registered([](DefaultKernels& kernels) {
  for (const Line& line : kLines) add_line(kernels, line);
  const Operator adam_of([](Call& call) { return adam(call, false); });
  const Operator adamw_of([](Call& call) { return adam(call, true); });
  add_operator(kernels, {"_fused_adam_", "_fused_adam_.tensor_lr"}, adam_of);
  add_operator(kernels, {"_fused_adamw_", "_fused_adamw_.tensor_lr"}, adamw_of);
  add_operator(kernels, {"_fused_sgd_", "_fused_sgd_.tensor_lr"}, &sgd);
});

}  // namespace
}  // namespace foreach_impl
}  // namespace backplane::portable
