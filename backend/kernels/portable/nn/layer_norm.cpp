// kernels/portable/nn/layer_norm.cpp: layer norm and its backward (layer_norm.bpc).
#include <backplane/structured.h>

#include <string>
#include <vector>

#include "kernels/portable/nn/norms.h"
#include "kernels/portable/reduction/reduce.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace layer_norm_impl {
namespace {

constexpr int64_t kWidened = 4096;  // elements of rows of halves that are kept as float32 in local memory

// The operands; undefined where there are none.
struct LayerNorm {
  bool is_backward;
  at::Tensor out, mean, rstd, input, grad, weight, bias;
  int64_t rows, size;
  double eps;
};

bool launch(const LayerNorm& call) {
  const c10::DeviceIndex device = call.input.device().index();
  const Target& target = target_of(device);
  const c10::ScalarType dtype = call.input.scalar_type();
  const c10::ScalarType compute = accumulated(dtype);
  const uint32_t group = target.properties.group_size;
  const bool is_wide = has_wide_extent(target, call.input.numel());
  const uint32_t per_item = !target.is_host() ? 4 : call.size >= 256 ? 64 : call.size >= 32 ? 32 : 8;
  const uint32_t row_items = call.size >= group ? group : std::min<uint32_t>(32, group);
  Unit unit(device, "layer_norm.bpc", "layer_norm", call.is_backward ? Literal("layer_norm_backward") : Literal("layer_norm"));
  unit.compute_in(dtype).file("rows.bpc").op(call.is_backward ? Literal("backward") : Literal("forward"));
  Arguments arguments;
  const auto write = [&](const at::Tensor& tensor, Literal name) {
    unit.write(name, tensor.scalar_type());
    arguments.write(tensor);
  };
  const auto read = [&](const at::Tensor& tensor, Literal name) {
    unit.read(name, tensor.scalar_type());
    arguments.read(tensor);
  };
  const auto element = [&](const at::Tensor& tensor, Literal name, Literal word, Literal place, const Part& none) {
    if (!tensor.defined()) {
      unit.define(word, none);
      return;
    }
    read(tensor, name);
    unit.load(word, tensor.scalar_type(), place);
  };
  write(call.out, "out");
  if (call.is_backward) {
    read(call.mean, "mean");
    read(call.rstd, "rstd");
  } else {
    write(call.mean, "mean");
    write(call.rstd, "rstd");
  }
  element(call.input, "x", "X(i)", "x, i", "");
  element(call.grad, "grad", "G(i)", "grad, i", "0");
  element(call.weight, "w", "W(i)", "w, i", "(C)1");
  element(call.bias, "b", "B(i)", "b, i", "(C)0");
  const auto is_half = [&](const at::Tensor& tensor) { return tensor.defined() && tensor.scalar_type() == c10::kHalf; };
  const bool is_widened = target.is_host() && is_half(call.input) && call.size <= kWidened;
  unit.define("HALVES", is_widened ? kWidened : 0).define("HALF_W", is_widened && is_half(call.weight));
  unit.define("HALF_B", is_widened && is_half(call.bias));
  unit.store("STORE(i, v)", dtype, "out, i, v").define("ROW_ITEMS", row_items).index(is_wide);
  unit.define("MEMBERS", compute == c10::kDouble ? Literal("f64 eps; f64 share;") : Literal("f32 eps; u32 eps_; f32 share; u32 share_;"));
  const Function* function = unit.find(per_item, 4);
  if (function == nullptr) return false;
  arguments.words(call.rows, call.size, word_of(call.eps, compute), word_of(1.0 / static_cast<double>(call.size), compute));
  const uint64_t together = function->group / row_items;
  launch_function(device, *function, (static_cast<uint64_t>(call.rows) + together - 1) / together, arguments);
  return true;
}

// The normalized dimensions are the last ones of the input.
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
bool layer_norm(Call& given) {
  const at::Tensor& input = given.tensor(0);
  const std::vector<int64_t> normalized = given[1].toIntVector();
  const at::Tensor weight = given.tensor_or_none(2), bias = given.tensor_or_none(3);
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
  call.eps = given[4].toDouble();
  if (!launch(call)) return false;
  for (const at::Tensor& result : {call.out, call.mean, call.rstd}) given.give(result);
  return true;
}

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
bool layer_norm_backward(Call& given) {
  const at::Tensor &grad = given.tensor(0), &input = given.tensor(1), &mean = given.tensor(3), &rstd = given.tensor(4);
  const std::vector<int64_t> normalized = given[2].toIntVector();
  const at::Tensor weight = given.tensor_or_none(5), bias = given.tensor_or_none(6);
  const c10::List<bool> mask = given[7].toBoolList();
  LayerNorm call{};
  call.is_backward = true;
  if (!split_layers(input, normalized, call.rows, call.size) || !is_gradient_of(grad, input)) return false;
  if (!is_parameter(weight, call.size, input) || !is_parameter(bias, call.size, input)) return false;
  if (!is_float(mean) || !is_float(rstd) || mean.numel() != call.rows || rstd.numel() != call.rows) return false;
  const c10::DeviceIndex device = input.device().index();
  const c10::ScalarType statistics = accumulated(input.scalar_type());
  call.input = input.contiguous();
  call.grad = grad.contiguous();
  call.mean = dense_in(mean, statistics);
  call.rstd = dense_in(rstd, statistics);
  if (weight.defined()) call.weight = weight.contiguous();
  at::Tensor results[3];
  if (mask[0]) {
    call.out = empty(input.sizes(), input.scalar_type(), device);
    if (!launch(call)) return false;
    results[0] = call.out;
  }
  if (mask[1] || mask[2]) {
    const c10::ScalarType like = weight.defined() ? weight.scalar_type() : bias.defined() ? bias.scalar_type() : input.scalar_type();
    const at::Tensor shift = empty(normalized, like, device), scale = empty(normalized, like, device);
    FoldCall fold_call{call.grad.view({call.rows, call.size}), 1, statistics};
    fold_call.pair = call.input.view({call.rows, call.size});
    fold_call.m = call.mean;
    fold_call.q = call.rstd;
    if (!fold({"affine_slopes", 2, true}, fold_call, {shift, scale})) return false;
    if (mask[1]) results[1] = scale;
    if (mask[2]) results[2] = shift;
  }
  for (const at::Tensor& result : results) given.give(result);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"native_layer_norm"}, &layer_norm);
  add_operator(kernels, {"native_layer_norm_backward"}, &layer_norm_backward);
});

}  // namespace
}  // namespace layer_norm_impl
}  // namespace backplane::portable
