// aten/batch_norm_parts.cpp: the parts of a batch norm over several processes (torch.nn.SyncBatchNorm), which torch calls one by one on an
// accelerator; composed of device operators. The CPU has no such kernels to fall back to.
//
// Statistics are vectors of channels in the dtype of computation: float32 for half types. All sums of a call are computed in it.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/where.h>

#include <optional>
#include <tuple>

#include "dispatch/defaults.h"

namespace backplane::batch_norm_parts_impl {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

c10::ScalarType compute_dtype(const at::Tensor& tensor) {
  return c10::isReducedFloatingType(tensor.scalar_type()) ? c10::kFloat : tensor.scalar_type();
}

at::Tensor widened(const at::Tensor& tensor) { return tensor.to(compute_dtype(tensor)); }

bool is_given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

void check_input(const char* name, const at::Tensor& input) {
  TORCH_CHECK(c10::isFloatingType(input.scalar_type()), name, ": input must be of a floating point dtype, and is ", input.scalar_type());
  TORCH_CHECK(input.dim() >= 2, name, ": input must have a dimension of batches and one of channels, and has ", input.dim(), " dimensions");
}

// A vector of channels, broadcast to the input's dimensions.
at::Tensor by_channel(const char* name, const char* argument, const at::Tensor& vector, const at::Tensor& input) {
  TORCH_CHECK(vector.numel() == input.size(1), name, ": ", argument, " must have an element for each of the ", input.size(1),
              " channels, and has ", vector.numel());
  at::DimVector size(static_cast<size_t>(input.dim()), 1);
  size[1] = vector.numel();
  return widened(vector).reshape(size);
}

at::DimVector all_but_channels(const at::Tensor& input) {
  at::DimVector dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

at::Tensor inverse_deviation(const at::Tensor& variance, double eps) { return variance.add(eps).rsqrt_(); }

// The biased variance and the mean of each channel. Without elements they are NaN, without a warning.
std::tuple<at::Tensor, at::Tensor> variance_and_mean(const at::Tensor& input) {
  if (input.numel() == 0) {
    const at::Tensor nan = at::full({input.size(1)}, NAN, input.options().dtype(compute_dtype(input)));
    return {nan, nan.clone()};
  }
  return at::var_mean(widened(input), all_but_channels(input), /*correction=*/at::Scalar(0), /*keepdim=*/false);
}

void move_towards(const OptionalTensor& running, const at::Tensor& value, double momentum) {
  if (is_given(running)) running->copy_(at::lerp(widened(*running), value.to(compute_dtype(*running)), momentum));
}

std::tuple<at::Tensor, at::Tensor> stats(const at::Tensor& input, double eps) {
  check_input("batch_norm_stats", input);
  const auto [variance, mean] = variance_and_mean(input);
  return {mean, inverse_deviation(variance, eps)};
}

std::tuple<at::Tensor, at::Tensor> update_stats(const at::Tensor& input, const OptionalTensor& running_mean,
                                                const OptionalTensor& running_var, double momentum) {
  check_input("batch_norm_update_stats", input);
  TORCH_CHECK(input.numel() != 0,
              "batch_norm_update_stats: input tensor must have at least one element, but got input_sizes = ", input.sizes());
  const auto [variance, mean] = variance_and_mean(input);
  const auto count = static_cast<double>(input.numel() / input.size(1));
  move_towards(running_mean, mean, momentum);
  move_towards(running_var, variance.mul(count / (count - 1)), momentum);
  return {mean, variance};
}

at::Tensor elemt(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, const at::Tensor& mean,
                 const at::Tensor& invstd, double /*eps: the deviation has it*/) {
  constexpr const char* kName = "batch_norm_elemt";
  check_input(kName, input);
  at::Tensor scale = by_channel(kName, "invstd", invstd, input);
  if (is_given(weight)) scale = scale * by_channel(kName, "weight", *weight, input);
  at::Tensor out = (input - by_channel(kName, "mean", mean, input)).mul_(scale);
  if (is_given(bias)) out.add_(by_channel(kName, "bias", *bias, input));
  return out.to(input.scalar_type());
}

at::Tensor& elemt_out(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, const at::Tensor& mean,
                      const at::Tensor& invstd, double eps, at::Tensor& out) {
  const at::Tensor result = elemt(input, weight, bias, mean, invstd, eps);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

// `mean` and `invstd`: a row for each process. A process with a count of 0 is ignored, whatever its statistics are.
std::tuple<at::Tensor, at::Tensor> gather_stats_with_counts(const at::Tensor& /*input*/, const at::Tensor& mean, const at::Tensor& invstd,
                                                            const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                                            double momentum, double eps, const at::Tensor& counts) {
  TORCH_CHECK(
      mean.dim() == 2 && invstd.sizes() == mean.sizes() && counts.numel() == mean.size(0),
      "batch_norm_gather_stats_with_counts: mean and invstd must have a row, and counts an element for each process; their sizes are ",
      mean.sizes(), ", ", invstd.sizes(), " and ", counts.sizes());
  const c10::ScalarType dtype = compute_dtype(mean);
  const at::Tensor count = counts.to(dtype).reshape({-1, 1}), total = count.sum();
  const at::Tensor is_empty = count == 0;
  const at::Tensor means = mean.to(dtype).masked_fill(is_empty, 0);
  const at::Tensor variances = invstd.to(dtype).pow(-2).sub_(eps).masked_fill_(is_empty, 0);
  const at::Tensor center = (means * count).sum(0).div_(total);
  const at::Tensor squares = ((means - center).square_().add_(variances).mul_(count)).sum(0);
  move_towards(running_mean, center, momentum);
  move_towards(running_var, squares / (total - 1), momentum);
  return {center, inverse_deviation(squares / total, eps)};
}

std::tuple<at::Tensor, at::Tensor> gather_stats(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                                                const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
                                                double eps, int64_t count) {
  const at::Tensor counts = at::full({mean.size(0)}, count, mean.options().dtype(compute_dtype(mean)));
  return gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

// The sums of dy and of dy (x - mean) for the gradient of the input, and the gradients of weight and bias; undefined if not requested.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(const at::Tensor& grad_out, const at::Tensor& input,
                                                                           const at::Tensor& mean, const at::Tensor& invstd,
                                                                           const OptionalTensor& weight, bool input_g, bool weight_g,
                                                                           bool bias_g) {
  constexpr const char* kName = "batch_norm_backward_reduce";
  check_input(kName, input);
  const at::DimVector dims = all_but_channels(input);
  const c10::ScalarType parameters = is_given(weight) ? weight->scalar_type() : compute_dtype(input);
  const at::Tensor sum = grad_out.sum(dims, /*keepdim=*/false, compute_dtype(input));
  at::Tensor dot;
  if (input_g || weight_g) {
    dot = (input - by_channel(kName, "mean", mean, input)).mul_(grad_out).sum(dims, /*keepdim=*/false);
  }
  return {input_g ? sum : at::Tensor(), input_g ? dot : at::Tensor(), weight_g ? (dot * widened(invstd)).to(parameters) : at::Tensor(),
          bias_g ? sum.to(parameters, /*non_blocking=*/false, /*copy=*/true) : at::Tensor()};
}

// `sum_dy` and `sum_dy_xmu` of all processes; `count`: the number of elements of a channel in each.
at::Tensor backward_elemt(const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                          const OptionalTensor& weight, const at::Tensor& sum_dy, const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  constexpr const char* kName = "batch_norm_backward_elemt";
  check_input(kName, input);
  const at::Tensor total = count.sum().to(compute_dtype(mean));
  const at::Tensor deviation = by_channel(kName, "invstd", invstd, input);
  const at::Tensor shift = by_channel(kName, "sum_dy", sum_dy, input) / total;
  const at::Tensor slope = (by_channel(kName, "sum_dy_xmu", sum_dy_xmu, input) / total).mul_(deviation).mul_(deviation);
  const at::Tensor scale = is_given(weight) ? deviation * by_channel(kName, "weight", *weight, input) : deviation;
  at::Tensor out = (input - by_channel(kName, "mean", mean, input)).mul_(slope);
  return out.add_(shift).neg_().add_(grad_out).mul_(scale).to(input.scalar_type());
}

const Defaults defaults([](DefaultKernels& m) {
  m.impl("batch_norm_stats", &stats);
  m.impl("batch_norm_update_stats", &update_stats);
  m.impl("batch_norm_elemt", &elemt);
  m.impl("batch_norm_elemt.out", &elemt_out);
  m.impl("batch_norm_gather_stats", &gather_stats);
  m.impl("batch_norm_gather_stats_with_counts", &gather_stats_with_counts);
  m.impl("batch_norm_backward_reduce", &backward_reduce);
  m.impl("batch_norm_backward_elemt", &backward_elemt);
});

}  // namespace
}  // namespace backplane::batch_norm_parts_impl
