// aten/views.cpp: view operators share the storage and propagate the tensor's backend metadata (torch's own views drop it).
#include <ATen/core/Tensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "dispatch/core_kernels.h"
#include "tensor/tensors.h"

namespace backplane {
namespace views_impl {
namespace {

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
  return with_metadata(at::native::as_strided_tensorimpl(self, size, stride, offset), self);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return with_metadata(at::native::view(self, size), self); }

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return with_metadata(at::native::_reshape_alias(self, size, stride), self);
}

at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return with_metadata(at::native::unfold(self, dim, size, step), self);
}

at::Tensor view_as_real(const at::Tensor& self) { return with_metadata(at::native::view_as_real(self), self); }

at::Tensor view_as_complex(const at::Tensor& self) { return with_metadata(at::native::view_as_complex(self), self); }

// The operators below have a device-independent kernel in torch; they are here only for the metadata. Every other view operator is built on
// these.
at::Tensor alias(const at::Tensor& self) { return with_metadata(at::native::alias(self), self); }

at::Tensor view_dtype(const at::Tensor& self, c10::ScalarType dtype) { return with_metadata(at::native::view_dtype(self, dtype), self); }

at::Tensor clone(const at::Tensor& self, std::optional<c10::MemoryFormat> format) {
  return with_metadata(at::native::clone(self, format), self);
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) {
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &unfold);
  m.impl("view_as_real", &view_as_real);
  m.impl("view_as_complex", &view_as_complex);
  m.impl("alias", &alias);
  m.impl("view.dtype", &view_dtype);
  m.impl("clone", &clone);
}

}  // namespace views_impl
}  // namespace backplane
