// aten/copy.cpp: the operator that every copy of torch calls.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <torch/library.h>

#include "dispatch/core_kernels.h"
#include "runtime/device.h"
#include "runtime/options.h"
#include "tensor/copy.h"
#include "tensor/tensors.h"

namespace backplane {
namespace copy_impl {
namespace {

void check_devices(const at::Tensor& src, const at::Tensor& dst) {
  for (const at::Tensor& tensor : {src, dst}) {
    TORCH_CHECK_NOT_IMPLEMENTED(is_on_device(tensor) || tensor.device().is_cpu(), "copy from ", src.device(), " to ", dst.device(),
                                " is not possible; copy to the CPU first");
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, "copy of ", tensor.layout(), " tensors to or from ", device_name(),
                                " is not supported; convert to a dense tensor first");
  }
}

// The errors are those of the CPU's copy.
at::Tensor expand_to(const at::Tensor& src, const at::Tensor& dst) {
  if (C10_LIKELY(src.sizes() == dst.sizes())) return src;
  const at::DimVector shape = at::infer_size_dimvector(dst.sizes(), src.sizes());
  TORCH_CHECK(dst.sizes() == shape, "output with shape ", dst.sizes(), " doesn't match the broadcast shape ", at::IntArrayRef(shape));
  return src.expand(dst.sizes());
}

bool is_same_data(const at::Tensor& src, const at::Tensor& dst) {
  return src.is_alias_of(dst) && src.storage_offset() == dst.storage_offset() && src.sizes() == dst.sizes() &&
         src.strides() == dst.strides() && !converts(src, dst);
}

// The checks are those of the CPU's copy, in its order; overlap is checked for the source as given, before it is expanded.
at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  check_devices(src, dst);
  if (is_same_data(src, dst)) return dst;
  at::assert_no_internal_overlap(dst);
  if (src.device() == dst.device()) at::assert_no_partial_overlap(dst, src);
  const at::Tensor expanded = expand_to(src, dst);
  if (dst.numel() == 0) return dst;
  check_span(src);
  check_span(dst);
  copy_tensor(expanded, dst, non_blocking);
  return dst;
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) { m.impl("_copy_from", &copy_from); }

// torch resolves lazy bits by a copy: the copy itself must get the tensor unresolved, or the two call each other endlessly.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace copy_impl
}  // namespace backplane
