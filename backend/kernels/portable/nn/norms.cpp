// kernels/portable/nn/norms.cpp: batch and group normalization and their gradients, by sums (reduction.bpc) and expressions of broadcast
// operands.
#include "kernels/portable/nn/norms.h"

#include <backplane/structured.h>

#include <string_view>

#include "kernels/portable/reduction/reduce.h"
#include "kernels/portable/unit/elementwise.h"
#include "modules/target.h"

namespace backplane::portable {

bool is_parameter(const at::Tensor& tensor, int64_t size, const at::Tensor& input) {
  if (!tensor.defined()) return true;
  const c10::ScalarType dtype = tensor.scalar_type();
  return is_float(tensor) && tensor.device() == input.device() && tensor.numel() == size &&
         (dtype == input.scalar_type() || dtype == accumulated(input.scalar_type()));
}

bool is_gradient_of(const at::Tensor& tensor, const at::Tensor& input) {
  return is_float(tensor) && tensor.device() == input.device() && tensor.sizes() == input.sizes() &&
         tensor.scalar_type() == input.scalar_type();
}

at::Tensor dense_in(const at::Tensor& tensor, c10::ScalarType dtype) { return tensor.to(dtype).contiguous(); }

namespace norms_impl {
namespace {

// A new tensor of the input's size and order: contiguous or channels_last, as on the CPU.
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

// (x - y) z w + v of input, mean, 1 / deviation, weight and bias; w and v may be undefined.
bool scale_and_shift(Literal name, const at::Tensor& out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                     const at::Tensor& weight, const at::Tensor& bias) {
  c10::SmallVector<at::Tensor, 6> inputs{input, mean, invstd};
  if (weight.defined()) inputs.push_back(weight);
  if (bias.defined()) inputs.push_back(bias);
  const int which = (weight.defined() ? 1 : 0) + (bias.defined() ? 2 : 0);
  constexpr Literal texts[] = {"(x - y) * z", "(x - y) * z * w", "(x - y) * z + w", "(x - y) * z * w + v"};
  return apply(name, out, inputs, texts[which], {}, accumulated(input.scalar_type()));
}

struct BatchNorm {
  at::Tensor input, weight, bias, running_mean, running_var;
  bool training;
  double momentum, eps;
};

// A vector of channels, broadcast over the input's dimensions.
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
  return apply("inverse deviation", out, variance, "(C)1 / m_sqrt(x + s0)", {eps}, out.scalar_type());
}

bool batch_norm(const BatchNorm& call, Call& given) {
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
    if (!fold({"var", 3}, {input, all_but_channels(input), statistics}, {variance, mean})) return false;
  } else {
    mean = call.running_mean.to(statistics, /*non_blocking=*/false, /*copy=*/true);
    variance = call.running_var.to(statistics);
  }
  const at::Tensor invstd = empty({channels}, statistics, device);
  const at::Tensor out = empty_alike(input);
  if (!inverse_deviation(invstd, variance, call.eps)) return false;
  if (!scale_and_shift("batch_norm", out, input, by_channel(mean, input), by_channel(invstd, input), by_channel(call.weight, input),
                       by_channel(call.bias, input))) {
    return false;
  }
  if (call.training && call.running_mean.defined()) {
    const auto count = static_cast<double>(input.numel() / channels);
    const c10::ScalarType dtype = call.running_mean.scalar_type();
    call.running_mean.lerp_(mean.to(dtype), call.momentum);
    call.running_var.lerp_(variance.mul(count / (count - 1)).to(call.running_var.scalar_type()), call.momentum);
  }
  for (const at::Tensor& result : {out, mean, invstd}) given.give(result);
  return true;
}

// The arguments of a backward call, and the wanted results.
struct BatchNormBackward {
  at::Tensor grad, input, weight, running_mean, running_var, mean, invstd;
  bool training;
  double eps;
  c10::List<bool> mask;
};

bool batch_norm_backward(const BatchNormBackward& call, at::Tensor (&results)[3]) {
  const at::Tensor& input = call.input;
  if (!is_float(input) || input.dim() < 2 || input.numel() == 0 || !is_gradient_of(call.grad, input)) return false;
  const int64_t channels = input.size(1);
  if (!is_parameter(call.weight, channels, input)) return false;
  at::Tensor mean = call.training ? call.mean : call.running_mean, invstd = call.training ? call.invstd : call.running_var;
  if (!mean.defined() || !invstd.defined() || !is_parameter(mean, channels, input) || !is_parameter(invstd, channels, input)) return false;
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  mean = dense_in(mean, statistics);
  if (call.training) {
    invstd = dense_in(invstd, statistics);
  } else {
    const at::Tensor variance = dense_in(invstd, statistics);
    invstd = empty({channels}, statistics, device);
    if (!inverse_deviation(invstd, variance, call.eps)) return false;
  }
  const at::Tensor weight = call.weight.defined() ? dense_in(call.weight, statistics) : at::Tensor();
  const at::Tensor scale = weight.defined() ? invstd.mul(weight) : invstd;
  at::Tensor sum, dot;
  if (call.training || call.mask[1] || call.mask[2]) {
    sum = empty({channels}, statistics, device);
    dot = empty({channels}, statistics, device);
    const bool is_same = call.grad.strides() == input.strides();
    FoldCall fold_call{is_same ? call.grad : call.grad.contiguous(), all_but_channels(input), statistics};
    fold_call.pair = is_same ? input : input.contiguous();
    fold_call.m = mean;
    if (!fold({"slopes", 2}, fold_call, {sum, dot})) return false;
    const c10::ScalarType dtype = call.weight.defined() ? call.weight.scalar_type() : input.scalar_type();
    if (call.mask[1]) results[1] = dot.mul(invstd).to(dtype);
    if (call.mask[2]) results[2] = sum.to(dtype, /*non_blocking=*/false, /*copy=*/true);
  }
  if (!call.mask[0]) return true;
  const at::Tensor out = empty_alike(input);
  const at::Tensor along_scale = by_channel(scale, input);
  if (!call.training) {
    if (!apply("batch_norm_backward", out, {call.grad, along_scale}, "x * y", {}, statistics)) return false;
  } else {
    const double share = static_cast<double>(channels) / static_cast<double>(input.numel());
    const at::Tensor along = by_channel(dot.mul(invstd).mul_(invstd).mul_(share), input), part = by_channel(sum.mul(share), input);
    if (!apply("batch_norm_backward", out, {call.grad, input, along_scale, by_channel(mean, input), along, part},
               "(x - u - (y - w) * v) * z", {}, statistics)) {
      return false;
    }
  }
  results[0] = out;
  return true;
}

// The positions of a form's arguments; -1: it does not have it.
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

at::Tensor at_place(const Call& call, int place) { return place < 0 ? at::Tensor() : call.tensor_or_none(static_cast<size_t>(place)); }

void add_batch_norm(DefaultKernels& kernels, const char* name, bool has_reserve, KernelCounter& counter) {
  const auto compute = [p = Places(detail::find_operator(name).schema()), has_reserve](Call& a) {
    const BatchNorm call{at_place(a, p.input),        at_place(a, p.weight),      at_place(a, p.bias),
                         at_place(a, p.running_mean), at_place(a, p.running_var), p.training < 0 || a[p.training].toBool(),
                         a[p.momentum].toDouble(),    a[p.eps].toDouble()};
    if (!batch_norm(call, a)) return false;
    if (has_reserve) a.give(empty({0}, c10::kByte, call.input.device().index()));
    return true;
  };
  add_operator(kernels, name, compute, counter);
}

void add_batch_norm_backward(DefaultKernels& kernels, const char* name, KernelCounter& counter) {
  const auto compute = [p = Places(detail::find_operator(name).schema())](Call& a) {
    const BatchNormBackward call{
        a.tensor(0),         at_place(a, p.input),  at_place(a, p.weight),  at_place(a, p.running_mean), at_place(a, p.running_var),
        at_place(a, p.mean), at_place(a, p.invstd), a[p.training].toBool(), a[p.eps].toDouble(),         a[p.mask].toBoolList()};
    at::Tensor results[3];
    if (!batch_norm_backward(call, results)) return false;
    for (const at::Tensor& result : results) a.give(result);
    return true;
  };
  add_operator(kernels, name, compute, counter);
}

// A group norm's input as batches, groups, channels of a group, and elements. Undefined: no such view exists.
at::Tensor by_group(const at::Tensor& input, int64_t groups, int64_t channels, int64_t size) {
  const bool is_dense = input.is_contiguous() || input.is_contiguous(input.suggest_memory_format());
  return is_dense ? input.view({input.size(0), groups, channels / groups, size}) : at::Tensor();
}

// The dtype of the statistics, as on the CPU.
c10::ScalarType group_statistics(const at::Tensor& input, const at::Tensor& weight) {
  return weight.defined() && weight.scalar_type() != input.scalar_type() ? accumulated(input.scalar_type()) : input.scalar_type();
}

// A vector of channels, broadcast over by_group's dimensions.
at::Tensor of_channels(const at::Tensor& vector, int64_t groups) {
  return vector.defined() ? vector.reshape({1, groups, vector.numel() / groups, 1}) : vector;
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
bool group_norm(Call& a) {
  const at::Tensor& input = a.tensor(0);
  const at::Tensor weight = a.tensor_or_none(1), bias = a.tensor_or_none(2);
  const int64_t batches = a[3].toInt(), channels = a[4].toInt(), size = a[5].toInt(), groups = a[6].toInt();
  if (!is_float(input) || input.dim() < 2 || input.numel() == 0 || groups <= 0 || channels % groups != 0) return false;
  if (input.size(0) != batches || input.numel() != batches * channels * size) return false;
  if (!is_parameter(weight, channels, input) || !is_parameter(bias, channels, input)) return false;
  const at::Tensor grouped = by_group(input, groups, channels, size);
  if (!grouped.defined()) return false;
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  const at::Tensor mean = empty({batches, groups, 1, 1}, statistics, device), variance = empty({batches, groups, 1, 1}, statistics, device);
  if (!fold({"var", 3}, {grouped, 12, statistics}, {variance, mean})) return false;
  const at::Tensor rstd = empty({batches, groups, 1, 1}, statistics, device);
  if (!inverse_deviation(rstd, variance, a[7].toDouble())) return false;
  const at::Tensor out = empty_alike(input);
  if (!scale_and_shift("group_norm", out.view(grouped.sizes()), grouped, mean, rstd, of_channels(weight, groups),
                       of_channels(bias, groups))) {
    return false;
  }
  const c10::ScalarType dtype = group_statistics(input, weight);
  for (const at::Tensor& result : {out, mean.view({batches, groups}).to(dtype), rstd.view({batches, groups}).to(dtype)}) a.give(result);
  return true;
}

// native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
bool group_norm_backward(Call& a) {
  const at::Tensor &grad = a.tensor(0), &input = a.tensor(1);
  const at::Tensor weight = a.tensor_or_none(4);
  const int64_t batches = a[5].toInt(), channels = a[6].toInt(), size = a[7].toInt(), groups = a[8].toInt();
  const c10::List<bool> mask = a[9].toBoolList();
  if (!is_float(input) || input.dim() < 2 || input.numel() == 0 || groups <= 0 || channels % groups != 0) return false;
  if (input.size(0) != batches || input.numel() != batches * channels * size || !is_gradient_of(grad, input)) return false;
  if (!is_parameter(weight, channels, input) || a.tensor(2).numel() != batches * groups) return false;
  at::Tensor x = input, g = grad;
  if (grad.strides() != input.strides()) x = input.contiguous(), g = grad.contiguous();
  x = by_group(x, groups, channels, size);
  g = by_group(g, groups, channels, size);
  if (!x.defined() || !g.defined() || x.strides() != g.strides()) return false;

  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  const int64_t members = channels / groups;
  const at::Tensor mean = dense_in(a.tensor(2), statistics).view({batches, groups, 1, 1});
  const at::Tensor rstd = dense_in(a.tensor(3), statistics).view({batches, groups, 1, 1});
  const at::Tensor by_member = of_channels(weight.defined() ? dense_in(weight, statistics) : weight, groups);
  // For each channel of each batch: the sum of the gradient, and the sum of its product with (input - mean).
  const at::Tensor sum = empty({batches, groups, members, 1}, statistics, device), dot = empty(sum.sizes(), statistics, device);
  FoldCall fold_call{g, 8, statistics};
  fold_call.pair = x;
  fold_call.m = mean.expand(sum.sizes()).contiguous();
  if (!fold({"slopes", 2}, fold_call, {sum, dot})) return false;

  at::Tensor results[3];
  const c10::ScalarType dtype = weight.defined() ? weight.scalar_type() : input.scalar_type();
  if (mask[0]) {
    const double share = 1.0 / static_cast<double>(members * size);
    const auto over_group = [&](const at::Tensor& values) {
      return (by_member.defined() ? values.mul(by_member) : values).sum({2}, /*keepdim=*/true).mul_(share);
    };
    const at::Tensor part = over_group(sum).mul_(rstd), along = over_group(dot).mul_(rstd).mul_(rstd).mul_(rstd);
    const at::Tensor scale = by_member.defined() ? by_member.mul(rstd) : rstd;
    const at::Tensor out = empty_alike(input);
    if (!apply("group_norm_backward", out.view(x.sizes()), {g, x, mean, part, along, scale}, "x * u - w - (y - z) * v", {}, statistics)) {
      return false;
    }
    results[0] = out;
  }
  if (mask[1]) results[1] = dot.mul(rstd).sum({0}).reshape({channels}).to(dtype);
  if (mask[2]) results[2] = sum.sum({0}).reshape({channels}).to(dtype);
  for (const at::Tensor& result : results) a.give(result);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  KernelCounter& forward = portable_counter("native_batch_norm");
  for (const char* name : {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit.no_stats"}) {
    add_batch_norm(kernels, name, false, forward);
  }
  add_batch_norm(kernels, "_batch_norm_with_update", true, forward);
  KernelCounter& backward = portable_counter("native_batch_norm_backward");
  for (const char* name : {"native_batch_norm_backward", "batch_norm_backward"}) add_batch_norm_backward(kernels, name, backward);
  add_operator(kernels, {"native_group_norm"}, &group_norm);
  add_operator(kernels, {"native_group_norm_backward"}, &group_norm_backward);
});

}  // namespace
}  // namespace norms_impl
}  // namespace backplane::portable
