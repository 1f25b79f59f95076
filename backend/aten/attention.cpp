// aten/attention.cpp: fused attention: which calls use the fused kernel, and a forward and a backward in place of a vendor's.
//
// A vendor registers _scaled_dot_product_fused_attention_overrideable and its backward for PrivateUse1, and, if it supports other arguments
// than these do, its own choice, as the operator _fused_sdp_choice and as REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choice).
// Without them the CPU's flash kernel computes, or, where that would copy all the memory and the device has its own matmul and softmax,
// their composition.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>

#include <array>
#include <cmath>
#include <limits>

#include "aten/attention_parts.h"
#include "dispatch/defaults.h"
#include "dispatch/registration.h"
#include "fallback/fallback.h"
#include "modules/unit.h"
#include "runtime/capture.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"
#include "tensor/tensors.h"

namespace backplane::attention_impl {
namespace {

using attention_parts::dropout_factors;
using attention_parts::DropoutPlace;
using attention_parts::for_every_head;
using attention_parts::sum_over_sharers;
using attention_parts::take_dropout;

using OptionalTensor = std::optional<at::Tensor>;

bool is_given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

// -- the choice ----------------------------------------------------------------------------------------------------------------------

// Under vmap the operator would run once per sample, and neither form has a forward derivative: the composition supports both.
bool is_transformed(const at::Tensor& tensor) {
  return tensor.key_set().has(c10::DispatchKey::FuncTorchBatched) || tensor._fw_grad(0).defined();
}

bool mask_fits(const at::Tensor& mask, const at::Tensor& query, const at::Tensor& key) {
  const std::array<c10::SymInt, 4> scores{query.sym_size(0), query.sym_size(1), query.sym_size(2), key.sym_size(2)};
  if (mask.dim() < 2 || mask.dim() > 4) return false;
  for (int64_t i = 1; i <= mask.dim(); ++i) {
    if (mask.sym_size(-i) != 1 && mask.sym_size(-i) != scores[4 - i]) return false;
  }
  return true;
}

// Why the fused kernel does not support these arguments; nullptr if it does.
const char* refusal(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& mask, bool is_causal,
                    bool enable_gqa) {
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (tensor->layout() != c10::kStrided || tensor->is_nested() || tensor->dim() != 4) {
      return "query, key and value must be dense, of shape (batch, heads, length, size)";
    }
    if (is_transformed(*tensor)) return "the call is under vmap or forward-mode differentiation";
    if (tensor->scalar_type() != query.scalar_type()) return "query, key and value must have one dtype";
    if (tensor->sym_size(0) != query.sym_size(0)) return "query, key and value must have one batch size";
    if (tensor->sym_numel() == 0) return "query, key and value must have elements";
  }
  switch (query.scalar_type()) {
    case c10::kFloat:
    case c10::kDouble:
    case c10::kHalf:
    case c10::kBFloat16:
      break;
    default:
      return "the dtype must be float32, float64, float16 or bfloat16";
  }
  if (key.sym_size(1) != value.sym_size(1) || key.sym_size(2) != value.sym_size(2))
    return "key and value must have equal heads and lengths";
  if (query.sym_size(3) != key.sym_size(3)) return "query and key must have one size of head";
  if (query.sym_size(1) != key.sym_size(1) && (!enable_gqa || query.sym_size(1) % key.sym_size(1) != 0)) {
    return "query must have as many heads as key, or with enable_gqa a multiple of them";
  }
  if (!is_given(mask)) return nullptr;
  if (is_causal) return "an attn_mask and is_causal exclude each other";
  if (is_transformed(*mask)) return "the call is under vmap or forward-mode differentiation";
  if (mask->scalar_type() != c10::kBool && mask->scalar_type() != query.scalar_type()) return "attn_mask must be bool or of query's dtype";
  return mask_fits(*mask, query, key) ? nullptr : "attn_mask must broadcast to (batch, heads, length of query, length of key)";
}

// The device has one fused kernel: torch.nn.attention's fused backends all name it.
int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& mask, double, bool is_causal,
               std::optional<double>, bool enable_gqa) {
  at::Context& context = at::globalContext();
  const bool fused = context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP() ||
                     context.userEnabledCuDNNSDP();
  const bool math = context.userEnabledMathSDP();
  const bool math_first = math && context.sDPPriorityOrder().front() == at::SDPBackend::math;
  const char* reason = fused ? refusal(query, key, value, mask, is_causal, enable_gqa) : "no fused backend is enabled";
  if (reason == nullptr && !math_first) return static_cast<int64_t>(at::SDPBackend::overrideable);
  if (math) return static_cast<int64_t>(at::SDPBackend::math);
  TORCH_WARN("scaled_dot_product_attention on ", device_name(), ": the fused kernel is not used because ", reason,
             ", and the math backend is disabled (torch.nn.attention.sdpa_kernel)");
  return static_cast<int64_t>(at::SDPBackend::error);
}

// -- the kernels ---------------------------------------------------------------------------------------------------------------------

// A compiled kernel.
bool is_compiled(const char* name) { return is_portable(name) && can_compile() && kernel_policy() != KernelPolicy::off; }

// A kernel that runs on this driver.
bool has_kernel(const char* name) {
  if (is_portable(name)) return is_compiled(name);
  return detail::find_operator(name).hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) && !unmet_needs(name);
}

// Whether the CPU's flash kernel computes: yes, unless the device does better by itself.
bool uses_cpu_kernel(const at::Tensor& query, const at::Tensor& value, const OptionalTensor& bias, double dropout_p) {
  if (!fallback::is_registered() || dropout_p != 0 || query.size(3) != value.size(3)) return false;
  if (is_given(bias) && bias->scalar_type() == c10::kBool) return false;
  if (is_compiled("aten::bmm") && is_compiled("aten::_softmax")) return false;
  if (!has_kernel("aten::bmm") || !has_kernel("aten::_softmax")) return true;
  return open_driver().zero_copy && !is_capturing(current_stream(query.device().index()));  // a graph holds no call of the CPU
}

// The CPU's kernel assumes that its arguments' last dimension has stride 1, and supports masks of two and of four dimensions.
at::Tensor for_cpu(const at::Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }

OptionalTensor mask_for_cpu(const OptionalTensor& bias) {
  if (!is_given(bias)) return bias;
  return for_cpu(bias->dim() == 3 ? bias->unsqueeze(0) : *bias);
}

double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
}

// `tensor` with the dimensions in the order of `like`, as torch's meta functions have it, and in its dtype.
at::Tensor in_layout_of(const at::Tensor& like, const at::Tensor& tensor) {
  const auto strides = at::infer_dense_strides(tensor.sizes(), like.strides());
  if (tensor.scalar_type() == like.scalar_type() && tensor.strides() == strides) return tensor;
  return at::empty_strided(tensor.sizes(), strides, like.options()).copy_(tensor);
}

// A gradient for every head of query, summed over the heads that share one head of `like`.
at::Tensor gradient_like(const at::Tensor& gradient, const at::Tensor& like) {
  return in_layout_of(like, sum_over_sharers(gradient, like.size(1)));
}

c10::ScalarType compute_dtype(const at::Tensor& query) { return query.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat; }

// (batch, heads, length of query, length of key), in the dtype of computation.
at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, const OptionalTensor& bias, bool is_causal,
                     std::optional<double> scale) {
  constexpr double kMasked = -std::numeric_limits<double>::infinity();
  const c10::ScalarType dtype = compute_dtype(query);
  at::Tensor scores = at::matmul(query.to(dtype).mul(scale_of(query, scale)), for_every_head(key.to(dtype), query).transpose(-2, -1));
  if (is_causal) {
    const at::Tensor seen = at::ones({query.size(2), key.size(2)}, query.options().dtype(c10::kBool)).tril();
    scores.masked_fill_(seen.logical_not(), kMasked);
  }
  if (is_given(bias)) {
    bias->scalar_type() == c10::kBool ? scores.masked_fill_(bias->logical_not(), kMasked) : scores.add_(*bias);
  }
  return scores;
}

// cum_seq_q, cum_seq_k (undefined: all sequences have one length) and, unless requested, the debug mask are empty results.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor> forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& bias, double dropout_p, bool is_causal,
    bool return_debug_mask, std::optional<double> scale) {
  const char* reason = refusal(query, key, value, bias, is_causal, /*enable_gqa=*/true);
  TORCH_CHECK(reason == nullptr, "_scaled_dot_product_fused_attention_overrideable on ", device_name(), ": ", reason);
  TORCH_CHECK(dropout_p >= 0 && dropout_p <= 1, "dropout_p must be between 0 and 1, it is ", dropout_p);
  at::Tensor output, logsumexp, debug_mask;
  DropoutPlace place;
  if (uses_cpu_kernel(query, value, bias, dropout_p) && !return_debug_mask) {
    std::tie(output, logsumexp) = at::_scaled_dot_product_flash_attention_for_cpu(for_cpu(query), for_cpu(for_every_head(key, query)),
                                                                                  for_cpu(for_every_head(value, query)), dropout_p,
                                                                                  is_causal, mask_for_cpu(bias), scale);
  } else {
    const at::Tensor scores = scores_of(query, key, bias, is_causal, scale);
    logsumexp = at::logsumexp(scores, -1);
    at::Tensor weights = at::_safe_softmax(scores, -1);
    if (dropout_p > 0) {
      place = take_dropout(query.device().index(), weights.numel());
      weights.mul_(dropout_factors(weights, dropout_p, place));
    }
    output = at::matmul(weights, for_every_head(value.to(weights.scalar_type()), query));
    if (return_debug_mask) debug_mask = weights.to(query.scalar_type());
  }
  const auto number = [](const at::Tensor& value) {
    return value.defined() ? value : at::scalar_tensor(0, c10::TensorOptions(c10::kLong));
  };
  return {in_layout_of(query, output), logsumexp.contiguous(), at::Tensor(), at::Tensor(), query.sym_size(2), key.sym_size(2),
          number(place.seed),          number(place.offset),   debug_mask};
}

// Gradients of query, key, value and the bias; undefined where grad_input_mask does not request them.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& grad_out, const at::Tensor& query,
                                                                    const at::Tensor& key, const at::Tensor& value, const at::Tensor& bias,
                                                                    std::array<bool, 4> grad_input_mask, const at::Tensor& out,
                                                                    const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
                                                                    c10::SymInt, c10::SymInt, double dropout_p, bool is_causal,
                                                                    const at::Tensor& philox_seed, const at::Tensor& philox_offset,
                                                                    std::optional<double> scale) {
  const OptionalTensor optional_bias = bias.defined() ? OptionalTensor(bias) : std::nullopt;
  const bool wants_bias = grad_input_mask[3] && bias.defined() && bias.scalar_type() != c10::kBool;
  at::Tensor grad_query, grad_key, grad_value, grad_bias;
  if (!grad_out.defined()) return {};
  if (uses_cpu_kernel(query, value, optional_bias, dropout_p) && !wants_bias) {
    std::tie(grad_query, grad_key, grad_value) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        for_cpu(grad_out), for_cpu(query), for_cpu(for_every_head(key, query)), for_cpu(for_every_head(value, query)), for_cpu(out),
        logsumexp, dropout_p, is_causal, mask_for_cpu(optional_bias), scale);
  } else {
    const c10::ScalarType dtype = compute_dtype(query);
    const at::Tensor grad = grad_out.to(dtype);
    const at::Tensor weights = at::_safe_softmax(scores_of(query, key, optional_bias, is_causal, scale), -1);
    at::Tensor grad_weights = at::matmul(grad, for_every_head(value.to(dtype), query).transpose(-2, -1));
    at::Tensor dropped = weights;
    if (dropout_p > 0) {
      const at::Tensor factors = dropout_factors(weights, dropout_p, {philox_seed, philox_offset});
      grad_weights.mul_(factors);
      dropped = weights.mul(factors);
    }
    const at::Tensor grad_scores = weights.mul(grad_weights.sub_(weights.mul(grad_weights).sum(-1, true)));
    if (grad_input_mask[0]) grad_query = at::matmul(grad_scores, for_every_head(key.to(dtype), query)).mul_(scale_of(query, scale));
    if (grad_input_mask[1]) grad_key = at::matmul(grad_scores.transpose(-2, -1), query.to(dtype)).mul_(scale_of(query, scale));
    if (grad_input_mask[2]) grad_value = at::matmul(dropped.transpose(-2, -1), grad);
    if (wants_bias) grad_bias = at::empty_like(bias).copy_(grad_scores.sum_to_size(bias.sizes()));
  }
  const auto finished = [](bool wanted, const at::Tensor& gradient, const at::Tensor& like) {
    return wanted ? gradient_like(gradient, like) : at::Tensor();
  };
  return {finished(grad_input_mask[0], grad_query, query), finished(grad_input_mask[1], grad_key, key),
          finished(grad_input_mask[2], grad_value, value), grad_bias};
}

const Defaults defaults([](DefaultKernels& m) {
  m.impl("_fused_sdp_choice", &choose);
  m.impl("_scaled_dot_product_fused_attention_overrideable", &forward);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", &backward);
});

}  // namespace
}  // namespace backplane::attention_impl

// scaled_dot_product_attention calls this, and torch._fused_sdp_choice the operator. A vendor's own, registered later, replaces it.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &backplane::attention_impl::choose)
}
