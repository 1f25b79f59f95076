// aten/resize.cpp: operators that change a tensor's sizes or storage in place; old bytes stay, new ones are undefined.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>

#include <algorithm>

#include "dispatch/core_kernels.h"
#include "runtime/overrides.h"
#include "tensor/tensors.h"

namespace backplane {

namespace resize_impl {
namespace {

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(!format || *format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
  const size_t old_bytes = self.storage().nbytes();
  resize_tensor(self.unsafeGetTensorImpl(), size, std::nullopt);
  if (format) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  if (C10_UNLIKELY(fills_uninitialized()) && self.storage().nbytes() > old_bytes) {
    const int64_t old_count = static_cast<int64_t>(old_bytes / self.itemsize());
    const int64_t new_count = static_cast<int64_t>(self.storage().nbytes() / self.itemsize());
    at::Tensor grown = empty_tensor({0}, self.scalar_type(), self.device().index());
    grown.set_(self.storage(), old_count, {new_count - old_count}, {1});
    fill_uninitialized(grown);
  }
  return self;
}

const at::Tensor& resize_output_(const at::Tensor& self, at::IntArrayRef size, c10::Device device) {
  TORCH_CHECK(self.device() == device, "out Tensor doesn't have the correct device set: it is on ", self.device(), ", expected ", device);
  at::native::resize_output(self, size);
  return self;
}

at::Tensor& set_storage_(at::Tensor& self, c10::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  const c10::Storage storage_before = self.storage();
  const int64_t offset_before = self.storage_offset();
  try {
    at::native::checkSetStorage(self, std::move(source), offset, size, stride);  // sets the storage, and may throw afterwards
    impl->set_storage_offset(offset);
    const at::OptionalIntArrayRef stride_or_contiguous = stride.data() != nullptr ? at::OptionalIntArrayRef(stride) : std::nullopt;
    resize_tensor(impl, size, stride_or_contiguous);
  } catch (...) {
    impl->set_storage_keep_dtype(storage_before);
    impl->set_storage_offset(offset_before);
    throw;
  }
  return self;
}

at::Tensor& set_(at::Tensor& self) { return set_storage_(self, empty_storage(0, self.device().index()), 0, {0}, {}); }

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  at::native::resize_output(destination, self.sizes());
  return destination.copy_(self);
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) {
  m.impl("resize_", &resize_);
  m.impl("_resize_output_", &resize_output_);
  m.impl("set_.source_Storage_storage_offset", &set_storage_);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_));
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_", &set_);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

}  // namespace resize_impl
}  // namespace backplane
