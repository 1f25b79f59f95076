// kernels/portable/nn/attention.cpp: fused attention of a batch (attention.bpc) and its gradient (attention_backward.bpc).
// aten/attention.cpp has the compositions for calls that these decline.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/scalar_tensor.h>
#include <backplane/structured.h>

#include <array>
#include <cmath>
#include <optional>

#include "kernels/portable/nn/attention_unit.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/unit.h"
#include "modules/launch.h"
#include "modules/target.h"

namespace backplane::portable {
namespace attention_impl {
namespace {

// (batch, heads, length, size) of a dtype that is computed in float32, whose last dimension has stride 1, also in a result of that layout.
bool is_heads(const at::Tensor& tensor, const at::Tensor& query) {
  if (!is_like(tensor, query) || tensor.dim() != 4 || tensor.numel() == 0) return false;
  if (tensor.size(0) != query.size(0) || tensor.size(3) != query.size(3)) return false;
  return tensor.size(3) == 1 || (tensor.stride(3) == 1 && at::infer_dense_strides(tensor.sizes(), tensor.strides())[3] == 1);
}

// The mask for all scores, with strides of 0; undefined without one.
std::optional<at::Tensor> mask_for(const at::Tensor& mask, const at::Tensor& query, const at::Tensor& key) {
  if (!mask.defined()) return mask;
  const std::array<int64_t, 4> scores{query.size(0), query.size(1), query.size(2), key.size(2)};
  const bool is_bool = mask.scalar_type() == c10::kBool;
  if (!is_usable(mask) || mask.device() != query.device() || (!is_bool && mask.scalar_type() != query.scalar_type())) return std::nullopt;
  if (mask.dim() < 2 || mask.dim() > 4 || !at::is_expandable_to(mask.sizes(), scores)) return std::nullopt;
  return mask.expand(scores);
}

bool has_equal_lengths(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return is_float(query) && query.scalar_type() != c10::kDouble && is_heads(query, query) && is_heads(key, query) &&
         is_heads(value, query) && query.size(1) % key.size(1) == 0 && value.size(1) == key.size(1) && value.size(2) == key.size(2);
}

class Operands : public AttentionOperands {
 public:
  using AttentionOperands::AttentionOperands;

  void mask(const at::Tensor& mask) {
    unit_.define("MASK", !mask.defined() ? 0 : mask.scalar_type() == c10::kBool ? 2 : 1);
    if (!mask.defined()) return;
    read(mask, "bias", "BIAS(i)", "bias, i");
    const int64_t step = mask.stride(3);
    unit_.define("BIAS_STEP", step == 0 || step == 1 ? Part(step) : Part(Literal("bp_arg.bias_step")));
  }
  // Of batch, heads and lengths, and for a mask the last dimension.
  void strides(const at::Tensor& tensor) { arguments_.words(tensor.stride(0), tensor.stride(1), tensor.stride(2)); }
  void mask_strides(const at::Tensor& mask) {
    for (int64_t dim = 0; dim < 4; ++dim) arguments_.add(mask.defined() ? mask.stride(dim) : int64_t{0});
  }
};

double scale_of(const c10::IValue& scale, const at::Tensor& query) {
  return scale.isNone() ? 1.0 / std::sqrt(static_cast<double>(query.size(3))) : scale.toDouble();
}

// In the layout of an operand.
at::Tensor empty_as(const at::Tensor& like, c10::ScalarType dtype) {
  return empty_strided(like.sizes(), at::infer_dense_strides(like.sizes(), like.strides()), dtype, like.device().index());
}

// query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, scale. The results that only other kernels have are undefined or
// 0.
bool attend(Call& call) {
  const at::Tensor &query = call.tensor(0), &key = call.tensor(1), &value = call.tensor(2);
  const c10::ScalarType dtype = query.scalar_type();
  const bool is_causal = call[5].toBool();
  if (!has_equal_lengths(query, key, value) || call[4].toDouble() != 0 || call[6].toBool()) return false;
  const int64_t batch = query.size(0), heads = query.size(1), tokens = query.size(2), size = query.size(3), kv_heads = key.size(1);
  const std::optional<at::Tensor> mask = mask_for(call.tensor_or_none(3), query, key);
  if (!mask || (mask->defined() && is_causal)) return false;
  const Target& target = target_of(query.device().index());
  const std::optional<AttentionTile> tile = AttentionTile::of(target, heads / kv_heads, size, tokens);
  if (!tile) return false;
  // Where an item is a thread, the composition's tiles are faster than several of these.
  if (!target.is_host() && tokens > tile->queries) return false;

  const c10::DeviceIndex device = query.device().index();
  const at::Tensor out = empty_as(query, dtype);
  const at::Tensor logsumexp = empty({batch, heads, tokens}, c10::kFloat, device);
  Unit unit(device, "attention.bpc", "attention", "attention");
  Arguments arguments;
  Operands operands(unit, arguments);
  unit.compute_in(dtype).file("local_product.bpc");
  operands.write(out, "out", "STORE(i, v)", "out, i, v");
  operands.write(logsumexp, "logsumexp", "LOGSUMEXP(i, v)", "logsumexp, i, v");
  operands.read(query, "q", "Q(i)", "q, i");
  operands.read(key, "keys", "K(i)", "keys, i");
  operands.read(value, "values", "V(i)", "values, i");
  operands.mask(*mask);
  const bool is_of_keys = mask->defined() && mask->stride(2) == 0 && (tile->heads == 1 || mask->stride(1) == 0);
  unit.define("PAGED", 0).define("CAUSAL", is_causal).define("BIAS_OF_KEYS", is_of_keys).define_if(dtype == c10::kHalf, "IS_F16");
  tile->define(unit, size);
  const Function* function = unit.find(1, 22);
  if (function == nullptr) return false;
  const int64_t splits = heads / kv_heads / tile->heads;
  arguments.words(batch, tokens, kv_heads, splits, query.stride(2), query.stride(1), out.stride(2), out.stride(1));
  arguments.words(key.size(2), query.stride(0), out.stride(0));
  operands.strides(key);
  operands.strides(value);
  operands.mask_strides(*mask);
  arguments.add(word_of(scale_of(call[7], query), c10::kFloat));
  const int64_t jobs = batch * kv_heads * splits * ((tokens + tile->queries - 1) / tile->queries);
  launch_function(device, *function, static_cast<uint64_t>(jobs), arguments);

  const auto number = [](int64_t value) { return at::scalar_tensor(value, c10::TensorOptions(c10::kLong)); };
  for (const at::Tensor& one : {out, logsumexp, at::Tensor(), at::Tensor()}) call.give(c10::IValue(one));
  call.give(c10::IValue(tokens));
  call.give(c10::IValue(key.size(2)));
  for (const at::Tensor& one : {number(0), number(0), at::Tensor()}) call.give(c10::IValue(one));
  return true;
}

constexpr int64_t kRows = 64;  // of queries, and of keys, at a time

// grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
// philox_seed, philox_offset, scale
bool attend_backward(Call& call) {
  const at::Tensor &query = call.tensor(1), &key = call.tensor(2), &value = call.tensor(3), &logsumexp = call.tensor(7);
  const c10::List<bool> wanted = call[5].toBoolList();
  const Target& target = target_of(query.device().index());
  const int64_t lanes = static_cast<int64_t>(target.properties.vector_bytes) / 4;
  if (!target.is_host() || lanes == 0 || kRows % (2 * lanes) != 0 || !has_equal_lengths(query, key, value) || call[12].toDouble() != 0)
    return false;
  const at::Tensor mask_given = call.tensor_or_none(4);
  const std::optional<at::Tensor> mask = mask_for(mask_given, query, key);
  const bool is_causal = call[13].toBool();
  // An added mask may make the logarithm of a sum vanish in its row's largest score, so that weights would not be found from them.
  if (!mask || (mask->defined() && (is_causal || mask->scalar_type() != c10::kBool))) return false;
  at::Tensor grad = call.tensor(0);
  if (!grad.defined() || !is_like(grad, query) || grad.sizes() != query.sizes()) return false;
  if (!is_heads(grad, query)) grad = grad.contiguous();
  if (logsumexp.scalar_type() != c10::kFloat || !logsumexp.is_contiguous()) return false;
  const c10::ScalarType dtype = query.scalar_type();
  const int64_t size = query.size(3), sharing = query.size(1) / key.size(1);
  const int64_t pitch = host_pitch(target, size);
  if (4 * (kRows * (6 * pitch + 2 * size + 2 * kRows) + 160) > static_cast<int64_t>(target.properties.local_bytes)) return false;

  const at::Tensor delta = grad.to(c10::kFloat).mul(call.tensor(6)).sum(-1).contiguous();
  const at::Tensor grad_query = empty_as(query, c10::kFloat), grad_key = empty_as(key, dtype), grad_value = empty_as(value, dtype);
  Unit unit(query.device().index(), "attention_backward.bpc", "attention_backward", "attention_backward");
  Arguments arguments;
  Operands operands(unit, arguments);
  unit.compute_in(dtype).file("local_product.bpc").write("grad_q", c10::kFloat);
  arguments.write(grad_query);
  operands.write(grad_key, "grad_k", "STORE_K(i, v)", "grad_k, i, v");
  operands.write(grad_value, "grad_v", "STORE_V(i, v)", "grad_v, i, v");
  operands.read(grad, "grad", "G(i)", "grad, i");
  unit.read("logsumexp", c10::kFloat).read("delta", c10::kFloat);
  arguments.read(logsumexp);
  arguments.read(delta);
  operands.read(query, "q", "Q(i)", "q, i");
  operands.read(key, "keys", "K(i)", "keys, i");
  operands.read(value, "values", "V(i)", "values, i");
  operands.mask(*mask);
  unit.define("CAUSAL", is_causal)
      .define("SIZE", size)
      .define("PITCH", pitch)
      .define("ROWS", kRows)
      .define("KEYS", kRows)
      .define("STEP", 8);
  const Function* function = unit.find(1, 31);
  if (function == nullptr) return false;
  arguments.words(query.size(0), query.size(2), key.size(2), key.size(1), sharing);
  for (const at::Tensor& one : {query, key, value, grad, grad_query, grad_key, grad_value}) operands.strides(one);
  operands.mask_strides(*mask);
  arguments.add(word_of(scale_of(call[16], query), c10::kFloat));
  launch_function(query.device().index(), *function, static_cast<uint64_t>(query.size(0) * key.size(1)), arguments);

  const auto give = [&](size_t k, const at::Tensor& gradient) { call.give(c10::IValue(wanted[k] ? gradient : at::Tensor())); };
  give(0, wanted[0] && dtype != c10::kFloat ? empty_as(query, dtype).copy_(grad_query) : grad_query);
  give(1, grad_key);
  give(2, grad_value);
  call.give(c10::IValue(at::Tensor()));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"_scaled_dot_product_fused_attention_overrideable"}, &attend);
  add_operator(kernels, {"_scaled_dot_product_fused_attention_overrideable_backward"}, &attend_backward);
});

}  // namespace
}  // namespace attention_impl
}  // namespace backplane::portable
