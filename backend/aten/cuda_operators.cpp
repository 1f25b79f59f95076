// aten/cuda_operators.cpp: small operators that torch calls only on CUDA, or that programs call by name, composed of device operators.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty_like.h>

#include <array>
#include <optional>
#include <tuple>

#include "dispatch/defaults.h"

namespace backplane::cuda_operators_impl {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// `p`: the probability to keep an element, as for CUDA's operator. The mask is uint8.
std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& self, double p, std::optional<at::Generator> generator) {
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()), "_fused_dropout: self must be of a floating point dtype, and is ",
              self.scalar_type());
  at::Tensor mask = at::empty_like(self, self.options().dtype(c10::kByte));
  mask.bernoulli_(p, std::move(generator));
  return {self.mul(mask).mul_(p == 0 ? 0.0 : 1.0 / p), mask};
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  TORCH_CHECK(mask.scalar_type() == c10::kByte, "mask should be torch.uint8 dtype");
  return self.mul(mask).mul_(scale);
}

at::Tensor depthwise(const char* name, const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef kernel_size,
                     const OptionalTensor& bias, at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation) {
  const auto spatial = static_cast<int64_t>(kernel_size.size());
  TORCH_CHECK(self.dim() == spatial + 2 && weight.dim() == spatial + 2, name, ": input and weight must have ", spatial + 2,
              " dimensions, and have ", self.dim(), " and ", weight.dim());
  TORCH_CHECK(weight.size(1) == 1 && self.size(1) > 0 && weight.size(0) % self.size(1) == 0, name,
              ": the weight must be of shape (channels * multiplier, 1, ...), and is of ", weight.sizes(), " for ", self.size(1),
              " channels");
  TORCH_CHECK(weight.sizes().slice(2) == kernel_size, name, ": kernel_size is ", kernel_size, ", and the weight of shape ", weight.sizes());
  const at::DimVector none(kernel_size.size(), 0);
  return at::convolution(self, weight, bias, stride, padding, dilation, /*transposed=*/false, none, /*groups=*/self.size(1));
}

at::Tensor depthwise2d(const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef kernel_size, const OptionalTensor& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation) {
  return depthwise("_conv_depthwise2d", self, weight, kernel_size, bias, stride, padding, dilation);
}

const at::Tensor& depthwise2d_out(const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef kernel_size, const OptionalTensor& bias,
                                  at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, const at::Tensor& out) {
  const at::Tensor result = depthwise("_conv_depthwise2d", self, weight, kernel_size, bias, stride, padding, dilation);
  out.resize_(result.sizes());
  out.copy_(result);
  return out;
}

at::Tensor depthwise3d(const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef kernel_size, const OptionalTensor& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation) {
  return depthwise("conv_depthwise3d", self, weight, kernel_size, bias, stride, padding, dilation);
}

// `rstd`: 1 / root mean square of each row, from the forward. Computed in rstd's dtype.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad_out, const at::Tensor& input, at::IntArrayRef normalized_shape,
                                                     const at::Tensor& rstd, const OptionalTensor& weight, std::array<bool, 2> mask) {
  const c10::ScalarType dtype = rstd.scalar_type();
  const auto of_row = static_cast<int64_t>(normalized_shape.size());
  at::DimVector row, others;
  for (int64_t d = 0; d < input.dim(); ++d) (d < input.dim() - of_row ? others : row).push_back(d);
  const at::Tensor normalized = input.to(dtype) * rstd;
  const at::Tensor grad = grad_out.to(dtype);
  at::Tensor grad_input, grad_weight;
  if (mask[0]) {
    const at::Tensor scaled = weight && weight->defined() ? grad * weight->to(dtype) : grad;
    grad_input = (scaled - normalized * (scaled * normalized).mean(row, /*keepdim=*/true)).mul_(rstd).to(input.scalar_type());
  }
  if (mask[1] && weight && weight->defined()) {
    const at::Tensor product = grad * normalized;
    grad_weight = (others.empty() ? product : product.sum(others)).to(weight->scalar_type());
  }
  return {grad_input, grad_weight};
}

const Defaults defaults([](DefaultKernels& m) {
  m.impl("_fused_dropout", &fused_dropout);
  m.impl("_masked_scale", &masked_scale);
  m.impl("_conv_depthwise2d", &depthwise2d);
  m.impl("_conv_depthwise2d.out", &depthwise2d_out);
  m.impl("conv_depthwise3d", &depthwise3d);
  m.impl("_fused_rms_norm_backward", &rms_norm_backward);
});

}  // namespace
}  // namespace backplane::cuda_operators_impl
