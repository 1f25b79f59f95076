// kernels/portable/norms.cpp: layer, group and batch norm and their backwards. Layer norm is a kernel of its own (layer_norm.bpc); the
// others are sums (reduction.bpc) and expressions of broadcast operands.
//
// Statistics are in float32 for half types, as the core's defaults for layer and batch norm have them (aten/norms.cpp); of group norm in
// the dtype that the CPU gives them.
#include <backplane/structured.h>

#include <bit>
#include <string>

#include "kernels/portable/elementwise.h"
#include "kernels/portable/family.h"
#include "kernels/portable/reduce.h"
#include "kernels/portable/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace norms_impl {
namespace {

// Calls, for tests.
KernelCounter& layer_norm_calls = portable_counter("native_layer_norm");
KernelCounter& layer_norm_backward_calls = portable_counter("native_layer_norm_backward");
KernelCounter& batch_norm_calls = portable_counter("native_batch_norm");
KernelCounter& batch_norm_backward_calls = portable_counter("native_batch_norm_backward");
KernelCounter& group_norm_calls = portable_counter("native_group_norm");
KernelCounter& group_norm_backward_calls = portable_counter("native_group_norm_backward");

bool is_float(const at::Tensor& tensor) { return can_walk(tensor) && c10::isFloatingType(tensor.scalar_type()); }

// A vector of that size or nothing, of the dtype or, beside half types, of float32.
bool is_parameter(const at::Tensor& tensor, int64_t size, const at::Tensor& input) {
  if (!tensor.defined()) return true;
  const c10::ScalarType dtype = tensor.scalar_type();
  return is_float(tensor) && tensor.device() == input.device() && tensor.numel() == size &&
         (dtype == input.scalar_type() || dtype == accumulated(input.scalar_type()));
}

bool is_like(const at::Tensor& tensor, const at::Tensor& input) {
  return is_float(tensor) && tensor.device() == input.device() && tensor.sizes() == input.sizes() &&
         tensor.scalar_type() == input.scalar_type();
}

at::Tensor in(const at::Tensor& tensor, c10::ScalarType dtype) { return tensor.to(dtype).contiguous(); }

// ---- layer norm ----

// The operands as they are; undefined where there are none.
struct LayerNorm {
  bool is_backward;
  at::Tensor out, mean, rstd, input, grad, weight, bias;
  int64_t rows, size;
  double eps;
};

bool launch(const LayerNorm& call, KernelSlots& slots) {
  const c10::DeviceIndex device = call.input.device().index();
  const Target& target = target_of(device);
  const c10::ScalarType dtype = call.input.scalar_type();
  const c10::ScalarType compute = accumulated(dtype);
  const uint32_t group = target.properties.group_size;
  const bool is_wide = has_wide_extent(target, call.input.numel());
  const uint32_t per_item = !target.is_host() ? 4 : call.size >= 256 ? 64 : call.size >= 32 ? 32 : 8;
  const uint32_t row_items = call.size >= group ? group : std::min<uint32_t>(32, group);
  uint64_t key = static_cast<uint64_t>(device) & 63;
  for (const at::Tensor* tensor : {&call.input, &call.weight, &call.bias}) {
    key = key << 4 | (tensor->defined() ? dtype_bits(tensor->scalar_type()) : kNoDtype);
  }
  key = (key << 9 | per_item) << 12 | row_items << 1 | static_cast<uint64_t>(is_wide);
  uint32_t pointers = 0;
  const auto make = [&] {
    Definitions text;
    text.compute_in(compute_type(dtype));
    text.add(call.is_backward ? "OP_backward" : "OP_forward", 1);
    std::string parameters;
    const auto operand = [&](const at::Tensor& tensor, const char* word, const char* name, const char* none, bool is_written) {
      if (!tensor.defined()) return text.add(join(word, "(i)").c_str(), none);
      const c10::ScalarType type = tensor.scalar_type();
      append(parameters, parameters.empty() ? "" : ", ", "BP_GLOBAL ", is_written ? "" : "const ", memory_type(type), "* BP_RESTRICT ",
             name);
      if (*word != 0) text.add(join(word, "(i)").c_str(), load_text(type, join(name, ", i")));
      ++pointers;
    };
    operand(call.out, "", "out", "", true);
    operand(call.mean, "", "mean", "", !call.is_backward);
    operand(call.rstd, "", "rstd", "", !call.is_backward);
    operand(call.input, "X", "x", "", false);
    operand(call.grad, "G", "grad", "0", false);
    operand(call.weight, "W", "w", "(C)1", false);
    operand(call.bias, "B", "b", "(C)0", false);
    text.add("STORE(i, v)", "bp_store_", dialect_name(dtype), "(out, i, v)");
    text.add("POINTERS", pointers);
    text.add("PARAMETERS", parameters);
    text.add("MEMBERS", compute == c10::kDouble ? "f64 eps; f64 share;" : "f32 eps; u32 eps_; f32 share; u32 share_;");
    text.add("ROW_ITEMS", row_items);
    text.add("IDX", is_wide ? "i64" : "i32");
    KernelSource source;
    source.name = join(call.is_backward ? "layer_norm_backward[" : "layer_norm[", dialect_name(dtype), "]");
    source.definitions = text.text();
    source.files = {"math.bpc", "compute.bpc", "rows.bpc", "layer_norm.bpc"};
    source.kernel = "layer_norm";
    source.per_item = per_item;
    source.signature.struct_size = sizeof source.signature;
    source.signature.pointers = pointers;
    source.signature.value_bytes = 32;
    source.signature.written = call.is_backward ? 1 : 7;
    return source;
  };
  const Function* function = slots.find(key, device, make);
  if (function == nullptr) return false;
  KernelArguments arguments;
  arguments.add(writable_address_of(call.out));
  for (const at::Tensor* tensor : {&call.mean, &call.rstd, &call.input, &call.grad, &call.weight, &call.bias}) {
    if (tensor->defined()) arguments.add(address_of(*tensor));
  }
  arguments.add(call.rows);
  arguments.add(call.size);
  arguments.add(word_of(call.eps, compute));
  arguments.add(word_of(1.0 / static_cast<double>(call.size), compute));
  const uint64_t together = function->group / row_items;
  launch_function(device, *function, (static_cast<uint64_t>(call.rows) + together - 1) / together, arguments);
  return true;
}

// The normalized dimensions are the last ones of the input's.
bool split_layers(const at::Tensor& input, const std::vector<int64_t>& normalized, int64_t& rows, int64_t& size) {
  const auto dims = static_cast<int64_t>(normalized.size());
  if (!is_float(input) || dims == 0 || input.dim() < dims || input.sizes().slice(static_cast<size_t>(input.dim() - dims)) != normalized) {
    return false;
  }
  size = c10::multiply_integers(normalized);
  rows = size == 0 ? 0 : input.numel() / size;
  return input.numel() != 0;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
bool layer_norm(const c10::IValue* a, Results& results) {
  static auto& slots = *new KernelSlots;
  const at::Tensor& input = a[0].toTensor();
  const std::vector<int64_t> normalized = a[1].toIntVector();
  const at::Tensor weight = tensor_of(a[2]), bias = tensor_of(a[3]);
  LayerNorm call{};
  if (!split_layers(input, normalized, call.rows, call.size)) return false;
  for (const at::Tensor& parameter : {weight, bias}) {
    if (!is_parameter(parameter, call.size, input) || (parameter.defined() && parameter.sizes() != normalized)) return false;
  }
  at::DimVector size(input.sizes());
  for (size_t d = size.size() - normalized.size(); d < size.size(); ++d) size[d] = 1;
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  call.out = empty(input.sizes(), input.scalar_type(), device);
  call.mean = empty(size, statistics, device);
  call.rstd = empty(size, statistics, device);
  call.input = input.contiguous();
  if (weight.defined()) call.weight = weight.contiguous();
  if (bias.defined()) call.bias = bias.contiguous();
  call.eps = a[4].toDouble();
  if (!launch(call, slots)) return false;
  layer_norm_calls.count();
  results = {call.out, call.mean, call.rstd};
  return true;
}

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
bool layer_norm_backward(const c10::IValue* a, Results& results) {
  static auto& slots = *new KernelSlots;
  static auto& sums = *new KernelSlots;
  const at::Tensor &grad = a[0].toTensor(), &input = a[1].toTensor(), &mean = a[3].toTensor(), &rstd = a[4].toTensor();
  const std::vector<int64_t> normalized = a[2].toIntVector();
  const at::Tensor weight = tensor_of(a[5]), bias = tensor_of(a[6]);
  const c10::List<bool> mask = a[7].toBoolList();
  LayerNorm call{};
  call.is_backward = true;
  if (!split_layers(input, normalized, call.rows, call.size) || !is_like(grad, input)) return false;
  if (!is_parameter(weight, call.size, input) || !is_parameter(bias, call.size, input)) return false;
  if (!is_float(mean) || !is_float(rstd) || mean.numel() != call.rows || rstd.numel() != call.rows) return false;
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  call.input = input.contiguous();
  call.grad = grad.contiguous();
  call.mean = in(mean, statistics);
  call.rstd = in(rstd, statistics);
  if (weight.defined()) call.weight = weight.contiguous();
  results.resize(3);
  if (mask[0]) {
    call.out = empty(input.sizes(), input.scalar_type(), device);
    if (!launch(call, slots)) return false;
    results[0] = call.out;
  }
  if (mask[1] || mask[2]) {
    const c10::ScalarType like = weight.defined() ? weight.scalar_type() : bias.defined() ? bias.scalar_type() : input.scalar_type();
    const at::Tensor shift = empty(normalized, like, device), scale = empty(normalized, like, device);
    FoldCall fold_call{call.grad.view({call.rows, call.size}), 1, statistics};
    fold_call.pair = call.input.view({call.rows, call.size});
    fold_call.m = call.mean;
    fold_call.q = call.rstd;
    if (!fold({"affine_slopes", 2, true}, fold_call, {shift, scale}, sums)) return false;
    if (mask[1]) results[1] = scale;
    if (mask[2]) results[2] = shift;
  }
  layer_norm_backward_calls.count();
  return true;
}

// ---- batch and group norm ----

// A new tensor of the input's size, dense in the same order: contiguous or channels last, as the CPU makes it.
at::Tensor empty_alike(const at::Tensor& input) {
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType dtype = input.scalar_type();
  switch (input.suggest_memory_format()) {
    case c10::MemoryFormat::ChannelsLast:
      return empty_strided(input.sizes(), c10::get_channels_last_strides_2d(input.sizes()), dtype, device);
    case c10::MemoryFormat::ChannelsLast3d:
      return empty_strided(input.sizes(), c10::get_channels_last_strides_3d(input.sizes()), dtype, device);
    default:
      return empty(input.sizes(), dtype, device);
  }
}

// (x - y) z w + v, without the last two where they are not there: of input, mean, 1 / deviation, weight and bias.
bool scale_and_shift(const char* name, const at::Tensor& out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                     const at::Tensor& weight, const at::Tensor& bias, KernelSlots& slots) {
  c10::SmallVector<at::Tensor, 6> inputs{input, mean, invstd};
  if (weight.defined()) inputs.push_back(weight);
  if (bias.defined()) inputs.push_back(bias);
  const int variant = (weight.defined() ? 1 : 0) + (bias.defined() ? 2 : 0);
  constexpr const char* texts[] = {"(x - y) * z", "(x - y) * z * w", "(x - y) * z + w", "(x - y) * z * w + v"};
  return apply(name, out, inputs, texts[variant], variant, {}, accumulated(input.scalar_type()), slots);
}

struct BatchNorm {
  at::Tensor input, weight, bias, running_mean, running_var;
  bool training;
  double momentum, eps;
};

// A vector of channels, against the input's dimensions.
at::Tensor by_channel(const at::Tensor& vector, const at::Tensor& input) {
  if (!vector.defined()) return vector;
  at::DimVector size(static_cast<size_t>(input.dim()), 1);
  size[1] = vector.numel();
  return vector.reshape(size);
}

DimMask all_but_channels(const at::Tensor& input) {
  DimMask mask;
  for (int64_t d = 0; d < input.dim(); ++d) mask.set(static_cast<size_t>(d), d != 1);
  return mask;
}

bool inverse_deviation(const at::Tensor& out, const at::Tensor& variance, double eps) {
  static auto& slots = *new KernelSlots;
  return apply("inverse deviation", out, variance, "(C)1 / m_sqrt(x + s0)", 0, {eps}, out.scalar_type(), slots);
}

bool batch_norm(const BatchNorm& call, Results& results) {
  static auto& sums = *new KernelSlots;
  static auto& slots = *new KernelSlots;
  const at::Tensor& input = call.input;
  if (!is_float(input) || input.dim() < 2 || input.numel() == 0) return false;
  const int64_t channels = input.size(1);
  for (const at::Tensor& parameter : {call.weight, call.bias, call.running_mean, call.running_var}) {
    if (!is_parameter(parameter, channels, input)) return false;
  }
  if (call.running_mean.defined() != call.running_var.defined() || (!call.training && !call.running_mean.defined())) return false;
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  at::Tensor mean, variance;
  if (call.training) {
    mean = empty({channels}, statistics, device);
    variance = empty({channels}, statistics, device);
    if (!fold({"var", 3}, {input, all_but_channels(input), statistics}, {variance, mean}, sums)) return false;
  } else {
    mean = call.running_mean.to(statistics, /*non_blocking=*/false, /*copy=*/true);
    variance = call.running_var.to(statistics);
  }
  const at::Tensor invstd = empty({channels}, statistics, device);
  const at::Tensor out = empty_alike(input);
  if (!inverse_deviation(invstd, variance, call.eps)) return false;
  if (!scale_and_shift("batch_norm", out, input, by_channel(mean, input), by_channel(invstd, input), by_channel(call.weight, input),
                       by_channel(call.bias, input), slots)) {
    return false;
  }
  if (call.training && call.running_mean.defined()) {
    const auto count = static_cast<double>(input.numel() / channels);
    const c10::ScalarType dtype = call.running_mean.scalar_type();
    call.running_mean.lerp_(mean.to(dtype), call.momentum);
    call.running_var.lerp_(variance.mul(count / (count - 1)).to(call.running_var.scalar_type()), call.momentum);
  }
  results = {out, mean, invstd};
  return true;
}

// What backward needs of a call, and which results are wanted.
struct BatchNormBackward {
  at::Tensor grad, input, weight, running_mean, running_var, mean, invstd;
  bool training;
  double eps;
  c10::List<bool> mask;
};

bool batch_norm_backward(const BatchNormBackward& call, Results& results) {
  static auto& sums = *new KernelSlots;
  static auto& slots = *new KernelSlots;
  const at::Tensor& input = call.input;
  if (!is_float(input) || input.dim() < 2 || input.numel() == 0 || !is_like(call.grad, input)) return false;
  const int64_t channels = input.size(1);
  if (!is_parameter(call.weight, channels, input)) return false;
  at::Tensor mean = call.training ? call.mean : call.running_mean, invstd = call.training ? call.invstd : call.running_var;
  if (!mean.defined() || !invstd.defined() || !is_parameter(mean, channels, input) || !is_parameter(invstd, channels, input)) return false;
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  mean = in(mean, statistics);
  if (call.training) {
    invstd = in(invstd, statistics);
  } else {
    const at::Tensor variance = in(invstd, statistics);
    invstd = empty({channels}, statistics, device);
    if (!inverse_deviation(invstd, variance, call.eps)) return false;
  }
  const at::Tensor weight = call.weight.defined() ? in(call.weight, statistics) : at::Tensor();
  const at::Tensor scale = weight.defined() ? invstd.mul(weight) : invstd;
  results.resize(3);
  at::Tensor sum, dot;
  if (call.training || call.mask[1] || call.mask[2]) {
    sum = empty({channels}, statistics, device);
    dot = empty({channels}, statistics, device);
    const bool is_same = call.grad.strides() == input.strides();
    FoldCall fold_call{is_same ? call.grad : call.grad.contiguous(), all_but_channels(input), statistics};
    fold_call.pair = is_same ? input : input.contiguous();
    fold_call.m = mean;
    if (!fold({"slopes", 2}, fold_call, {sum, dot}, sums)) return false;
    const c10::ScalarType dtype = call.weight.defined() ? call.weight.scalar_type() : input.scalar_type();
    if (call.mask[1]) results[1] = dot.mul(invstd).to(dtype);
    if (call.mask[2]) results[2] = sum.to(dtype, /*non_blocking=*/false, /*copy=*/true);
  }
  if (!call.mask[0]) return true;
  const at::Tensor out = empty_alike(input);
  const at::Tensor along_scale = by_channel(scale, input);
  if (!call.training) {
    if (!apply("batch_norm_backward", out, {call.grad, along_scale}, "x * y", 0, {}, statistics, slots)) return false;
  } else {
    const double share = static_cast<double>(channels) / static_cast<double>(input.numel());
    const at::Tensor along = by_channel(dot.mul(invstd).mul_(invstd).mul_(share), input), part = by_channel(sum.mul(share), input);
    if (!apply("batch_norm_backward", out, {call.grad, input, along_scale, by_channel(mean, input), along, part},
               "(x - u - (y - w) * v) * z", 1, {}, statistics, slots)) {
      return false;
    }
  }
  results[0] = out;
  return true;
}

// Where the arguments of a form are; -1: it has none.
struct Places {
  explicit Places(const c10::FunctionSchema& schema) {
    const auto find = [&](const char* name) { return schema.argumentIndexWithName(name).value_or(-1); };
    input = find("input"), weight = find("weight"), bias = find("bias"), running_mean = find("running_mean"),
    running_var = find("running_var");
    training = find("training") >= 0 ? find("training") : find("train") >= 0 ? find("train") : find("update");
    momentum = find("momentum"), eps = find("eps");
    mean = find("save_mean"), invstd = find("save_invstd") >= 0 ? find("save_invstd") : find("save_var");
    mask = find("output_mask");
  }
  int input, weight, bias, running_mean, running_var, training, momentum, eps, mean, invstd, mask;
};

at::Tensor at_place(const c10::IValue* a, int place) { return place < 0 ? at::Tensor() : tensor_of(a[place]); }

Compute batch_norm_form(const char* name, bool has_reserve) {
  return [p = Places(detail::find_operator(name).schema()), has_reserve](const c10::IValue* a, Results& results) {
    const BatchNorm call{at_place(a, p.input),        at_place(a, p.weight),      at_place(a, p.bias),
                         at_place(a, p.running_mean), at_place(a, p.running_var), p.training < 0 || a[p.training].toBool(),
                         a[p.momentum].toDouble(),    a[p.eps].toDouble()};
    if (!batch_norm(call, results)) return false;
    if (has_reserve) results.push_back(empty({0}, c10::kByte, call.input.device().index()));
    batch_norm_calls.count();
    return true;
  };
}

Compute batch_norm_backward_form(const char* name) {
  return [p = Places(detail::find_operator(name).schema())](const c10::IValue* a, Results& results) {
    const BatchNormBackward call{
        a[0].toTensor(),     at_place(a, p.input),  at_place(a, p.weight),  at_place(a, p.running_mean), at_place(a, p.running_var),
        at_place(a, p.mean), at_place(a, p.invstd), a[p.training].toBool(), a[p.eps].toDouble(),         a[p.mask].toBoolList()};
    if (!batch_norm_backward(call, results)) return false;
    batch_norm_backward_calls.count();
    return true;
  };
}

// A group norm's input as batches, groups, channels of a group, and elements. Undefined: it cannot be seen so.
at::Tensor by_group(const at::Tensor& input, int64_t groups, int64_t channels, int64_t size) {
  const bool is_dense = input.is_contiguous() || input.is_contiguous(input.suggest_memory_format());
  return is_dense ? input.view({input.size(0), groups, channels / groups, size}) : at::Tensor();
}

// The dtype of the statistics, as the CPU has it.
c10::ScalarType group_statistics(const at::Tensor& input, const at::Tensor& weight) {
  return weight.defined() && weight.scalar_type() != input.scalar_type() ? accumulated(input.scalar_type()) : input.scalar_type();
}

// A vector of channels against by_group's dimensions.
at::Tensor of_channels(const at::Tensor& vector, int64_t groups) {
  return vector.defined() ? vector.reshape({1, groups, vector.numel() / groups, 1}) : vector;
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
bool group_norm(const c10::IValue* a, Results& results) {
  static auto& sums = *new KernelSlots;
  static auto& slots = *new KernelSlots;
  const at::Tensor& input = a[0].toTensor();
  const at::Tensor weight = tensor_of(a[1]), bias = tensor_of(a[2]);
  const int64_t batches = a[3].toInt(), channels = a[4].toInt(), size = a[5].toInt(), groups = a[6].toInt();
  if (!is_float(input) || input.dim() < 2 || input.numel() == 0 || groups <= 0 || channels % groups != 0) return false;
  if (input.size(0) != batches || input.numel() != batches * channels * size) return false;
  if (!is_parameter(weight, channels, input) || !is_parameter(bias, channels, input)) return false;
  const at::Tensor grouped = by_group(input, groups, channels, size);
  if (!grouped.defined()) return false;
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  const at::Tensor mean = empty({batches, groups, 1, 1}, statistics, device), variance = empty({batches, groups, 1, 1}, statistics, device);
  if (!fold({"var", 3}, {grouped, 12, statistics}, {variance, mean}, sums)) return false;
  const at::Tensor rstd = empty({batches, groups, 1, 1}, statistics, device);
  if (!inverse_deviation(rstd, variance, a[7].toDouble())) return false;
  const at::Tensor out = empty_alike(input);
  if (!scale_and_shift("group_norm", out.view(grouped.sizes()), grouped, mean, rstd, of_channels(weight, groups), of_channels(bias, groups),
                       slots)) {
    return false;
  }
  const c10::ScalarType dtype = group_statistics(input, weight);
  group_norm_calls.count();
  results = {out, mean.view({batches, groups}).to(dtype), rstd.view({batches, groups}).to(dtype)};
  return true;
}

// native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
bool group_norm_backward(const c10::IValue* a, Results& results) {
  static auto& sums = *new KernelSlots;
  static auto& slots = *new KernelSlots;
  const at::Tensor &grad = a[0].toTensor(), &input = a[1].toTensor();
  const at::Tensor weight = tensor_of(a[4]);
  const int64_t batches = a[5].toInt(), channels = a[6].toInt(), size = a[7].toInt(), groups = a[8].toInt();
  const c10::List<bool> mask = a[9].toBoolList();
  if (!is_float(input) || input.dim() < 2 || input.numel() == 0 || groups <= 0 || channels % groups != 0) return false;
  if (input.size(0) != batches || input.numel() != batches * channels * size || !is_like(grad, input)) return false;
  if (!is_parameter(weight, channels, input) || a[2].toTensor().numel() != batches * groups) return false;
  at::Tensor x = input, g = grad;
  if (grad.strides() != input.strides()) x = input.contiguous(), g = grad.contiguous();
  x = by_group(x, groups, channels, size);
  g = by_group(g, groups, channels, size);
  if (!x.defined() || !g.defined() || x.strides() != g.strides()) return false;

  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  const int64_t members = channels / groups;
  const at::Tensor mean = in(a[2].toTensor(), statistics).view({batches, groups, 1, 1});
  const at::Tensor rstd = in(a[3].toTensor(), statistics).view({batches, groups, 1, 1});
  const at::Tensor by_member = of_channels(weight.defined() ? in(weight, statistics) : weight, groups);
  // Of each channel of each batch: the sums of the gradient, and of it by what the input is off the mean.
  const at::Tensor sum = empty({batches, groups, members, 1}, statistics, device), dot = empty(sum.sizes(), statistics, device);
  FoldCall fold_call{g, 8, statistics};
  fold_call.pair = x;
  fold_call.m = mean.expand(sum.sizes()).contiguous();
  if (!fold({"slopes", 2}, fold_call, {sum, dot}, sums)) return false;

  results.resize(3);
  const c10::ScalarType dtype = weight.defined() ? weight.scalar_type() : input.scalar_type();
  if (mask[0]) {
    const double share = 1.0 / static_cast<double>(members * size);
    const auto over_group = [&](const at::Tensor& values) {
      return (by_member.defined() ? values.mul(by_member) : values).sum({2}, /*keepdim=*/true).mul_(share);
    };
    const at::Tensor part = over_group(sum).mul_(rstd), along = over_group(dot).mul_(rstd).mul_(rstd).mul_(rstd);
    const at::Tensor scale = by_member.defined() ? by_member.mul(rstd) : rstd;
    const at::Tensor out = empty_alike(input);
    if (!apply("group_norm_backward", out.view(x.sizes()), {g, x, mean, part, along, scale}, "x * u - w - (y - z) * v", 0, {}, statistics,
               slots)) {
      return false;
    }
    results[0] = out;
  }
  if (mask[1]) results[1] = dot.mul(rstd).sum({0}).reshape({channels}).to(dtype);
  if (mask[2]) results[2] = sum.sum({0}).reshape({channels}).to(dtype);
  group_norm_backward_calls.count();
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  impl(kernels, "native_layer_norm", &layer_norm);
  impl(kernels, "native_layer_norm_backward", &layer_norm_backward);
  for (const char* name :
       {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit.no_stats", "_batch_norm_with_update"}) {
    impl(kernels, name, batch_norm_form(name, std::string_view(name) == "_batch_norm_with_update"));
  }
  for (const char* name : {"native_batch_norm_backward", "batch_norm_backward"}) impl(kernels, name, batch_norm_backward_form(name));
  impl(kernels, "native_group_norm", &group_norm);
  impl(kernels, "native_group_norm_backward", &group_norm_backward);
});

}  // namespace
}  // namespace norms_impl
}  // namespace backplane::portable
