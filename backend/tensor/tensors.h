// tensor/tensors.h: creates the core's device tensors and storages, with minimal overhead.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "runtime/device.h"

namespace backplane {

inline bool is_on_device(const at::TensorBase& tensor) { return tensor.device().type() == kDevice; }

// A resizable storage of the device's allocator, created as torch creates them (including a vendor's storage class).
c10::Storage empty_storage(size_t bytes, c10::DeviceIndex device);

// `device` is a visible index; the memory belongs to its current stream. Undefined content. Does not use at::detail::empty_generic, which
// creates a plain StorageImpl and never calls the device's factory.
inline at::Tensor empty_tensor(at::IntArrayRef size, c10::ScalarType dtype, c10::DeviceIndex device,
                               std::optional<c10::MemoryFormat> format = std::nullopt) {
  at::detail::check_size_nonnegative(size);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  at::Tensor tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      empty_storage(at::detail::computeStorageNbytesContiguous(size, type.itemsize()), device),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
  if (size.size() != 1 || size[0] != 0) tensor.unsafeGetTensorImpl()->generic_set_sizes_contiguous(size);
  if (format && *format != c10::MemoryFormat::Contiguous) tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return tensor;
}

inline at::Tensor empty_strided_tensor(at::IntArrayRef size, at::IntArrayRef stride, c10::ScalarType dtype, c10::DeviceIndex device) {
  at::detail::check_size_nonnegative(size);
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  at::Tensor tensor =
      at::detail::make_tensor_base<c10::TensorImpl>(empty_storage(at::detail::computeStorageNbytes(size, stride, type.itemsize()), device),
                                                    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return tensor;
}

// A tensor that is known to be zero, without memory, on the device or the CPU.
at::Tensor zero_tensor(at::IntArrayRef size, c10::ScalarType dtype, c10::Device device);

// A tensor made from another one, with its backend metadata, which torch drops.
at::Tensor with_metadata(at::Tensor result, const at::Tensor& self);

// Sets sizes, strides and, if the storage is too small, its bytes: as resize_ and set_ do. No strides: contiguous.
void resize_tensor(c10::TensorImpl* self, at::IntArrayRef size, at::OptionalIntArrayRef stride);

// The range of bytes in its storage that a tensor's elements span.
struct Span {
  uint64_t begin;
  uint64_t end;
};
Span span_of(const at::Tensor& tensor);

// Throws unless a tensor's elements are inside its storage, which may have been resized separately. For functions that copy bytes, on the
// host or on the device; kernels call check_allocated (backplane/kernel.h), which costs less.
void check_span(const at::Tensor& tensor);

// The same memory without repeated elements: a dimension of stride 0 has one element. For writers of one value per element.
at::Tensor without_repeats(const at::Tensor& tensor);

// torch.utils.deterministic.fill_uninitialized_memory: NaN, or the largest integer, so that a read of undefined memory is reproducible.
bool fills_uninitialized();
void fill_uninitialized(const at::Tensor& tensor);

}  // namespace backplane
