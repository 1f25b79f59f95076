// kernels/portable/layer_norm.cpp: layer norm and its backward (layer_norm.bpc).
#include <backplane/structured.h>

#include <string>
#include <vector>

#include "kernels/portable/elementwise.h"
#include "kernels/portable/norms.h"
#include "kernels/portable/reduce.h"
#include "kernels/portable/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace layer_norm_impl {
namespace {

// Calls, for tests.
KernelCounter& layer_norm_calls = portable_counter("native_layer_norm");
KernelCounter& layer_norm_backward_calls = portable_counter("native_layer_norm_backward");

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
  static KernelSlots slots;
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
  static KernelSlots slots;
  static KernelSlots sums;
  const at::Tensor &grad = a[0].toTensor(), &input = a[1].toTensor(), &mean = a[3].toTensor(), &rstd = a[4].toTensor();
  const std::vector<int64_t> normalized = a[2].toIntVector();
  const at::Tensor weight = tensor_of(a[5]), bias = tensor_of(a[6]);
  const c10::List<bool> mask = a[7].toBoolList();
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

const Defaults registered([](DefaultKernels& kernels) {
  impl(kernels, "native_layer_norm", &layer_norm);
  impl(kernels, "native_layer_norm_backward", &layer_norm_backward);
});

}  // namespace
}  // namespace layer_norm_impl
}  // namespace backplane::portable
