// aten/rnn.cpp: the fused LSTM and GRU cells that torch's recurrent layers call on every accelerator, composed of elementwise operators.
// The CPU has no such kernels to fall back to.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "dispatch/core_kernels.h"

namespace backplane::rnn_impl {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor with_bias(const at::Tensor& gates, const OptionalTensor& bias) { return bias && bias->defined() ? gates + *bias : gates; }

at::Tensor sigmoid_slope(const at::Tensor& activated) { return activated * (1 - activated); }

at::Tensor tanh_slope(const at::Tensor& activated) { return 1 - activated * activated; }

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const at::Tensor in = gates[0].sigmoid();
  const at::Tensor forget = gates[1].sigmoid();
  const at::Tensor cell = gates[2].tanh();
  const at::Tensor out = gates[3].sigmoid();
  const at::Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

// `workspace` is the third result of lstm_cell. The gradient of the bias is undefined without a bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                                  const at::Tensor& cx, const at::Tensor& cy, const at::Tensor& workspace,
                                                                  bool has_bias) {
  const bool has_hy = grad_hy && grad_hy->defined();
  const bool has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) return {};
  const auto gates = workspace.chunk(4, 1);
  const at::Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const at::Tensor tanh_cy = cy.tanh();
  at::Tensor grad_c;
  if (has_hy) grad_c = *grad_hy * out * tanh_slope(tanh_cy);
  if (has_cy) grad_c = grad_c.defined() ? grad_c + *grad_cy : *grad_cy;
  const at::Tensor grad_out = has_hy ? *grad_hy * tanh_cy * sigmoid_slope(out) : at::Tensor(out * 0);
  const at::Tensor grad_gates =
      at::cat({grad_c * cell * sigmoid_slope(in), grad_c * cx * sigmoid_slope(forget), grad_c * in * tanh_slope(cell), grad_out}, 1);
  return {grad_gates, grad_c * forget, has_bias ? grad_gates.sum(at::IntArrayRef{0}) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
                                            const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const at::Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const at::Tensor candidate = (from_input[2] + reset * from_hidden[2]).tanh();
  return {candidate + update * (hx - candidate), at::cat({reset, update, candidate, hx, from_hidden[2]}, 1)};
}

// `workspace` is the second result of gru_cell. Gradients of the input's gates, the hidden state's gates, the hidden state, the two biases.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace, bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const at::Tensor &reset = saved[0], &update = saved[1], &candidate = saved[2], &hx = saved[3], &hidden = saved[4];
  const at::Tensor grad_update = grad_hy * (hx - candidate) * sigmoid_slope(update);
  const at::Tensor grad_candidate = grad_hy * (1 - update) * tanh_slope(candidate);
  const at::Tensor grad_reset = grad_candidate * hidden * sigmoid_slope(reset);
  const at::Tensor grad_input = at::cat({grad_reset, grad_update, grad_candidate}, 1);
  const at::Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_candidate * reset}, 1);
  if (!has_bias) return {grad_input, grad_hidden, grad_hy * update, at::Tensor(), at::Tensor()};
  return {grad_input, grad_hidden, grad_hy * update, grad_input.sum(at::IntArrayRef{0}), grad_hidden.sum(at::IntArrayRef{0})};
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

}  // namespace backplane::rnn_impl
