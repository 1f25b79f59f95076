// aten/tensor_split.cpp: tensor_split with a tensor of indices on the device. ATen reads indices on the host, and refuses any that are
// elsewhere.
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor_split.h>

#include "dispatch/core_kernels.h"

namespace backplane::tensor_split_impl {
namespace {

std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& indices_or_sections, int64_t dim) {
  TORCH_CHECK(indices_or_sections.scalar_type() == c10::kLong,
              "tensor_split expected tensor_indices_or_sections to have dtype of long, but got ", indices_or_sections.scalar_type());
  TORCH_CHECK(indices_or_sections.dim() <= 1,
              "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got a tensor with ",
              indices_or_sections.dim(), " dims");
  if (indices_or_sections.dim() == 0) return at::tensor_split(self, indices_or_sections.item<int64_t>(), dim);
  const at::Tensor host = indices_or_sections.to(c10::kCPU).contiguous();
  return at::tensor_split(self, at::IntArrayRef(host.const_data_ptr<int64_t>(), host.numel()), dim);
}

}  // namespace

// Composed of differentiable operators: registered above autograd too, so that those record the graph.
BACKPLANE_CORE_KERNELS(PrivateUse1, m) { m.impl("tensor_split.tensor_indices_or_sections", &tensor_split); }
BACKPLANE_CORE_KERNELS(AutogradPrivateUse1, m) { m.impl("tensor_split.tensor_indices_or_sections", &tensor_split); }

}  // namespace backplane::tensor_split_impl
