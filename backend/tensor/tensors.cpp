// tensor/tensors.cpp: storages and sizes of device tensors, and the byte range of a tensor in its storage.
#include "tensor/tensors.h"

#include <ATen/Context.h>
#include <ATen/ops/fill.h>
#include <backplane/kernel.h>

#include <algorithm>
#include <limits>

#include "memory/storage.h"
#include "runtime/overrides.h"

namespace backplane {

c10::Storage empty_storage(size_t bytes, c10::DeviceIndex device) {
  const DeviceSwitch guard(device);
  return new_storage(bytes);
}

at::Tensor with_metadata(at::Tensor result, const at::Tensor& self) {
  if (C10_UNLIKELY(self.unsafeGetTensorImpl()->get_backend_meta() != nullptr)) {
    const auto meta = self.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr();
    result.unsafeGetTensorImpl()->set_backend_meta(meta->clone(meta));
  }
  return result;
}

void resize_tensor(c10::TensorImpl* self, at::IntArrayRef size, at::OptionalIntArrayRef stride) {
  if (self->sizes() == size && (!stride || self->strides() == *stride)) return;
  const auto itemsize = self->dtype().itemsize();
  const auto offset = static_cast<size_t>(self->storage_offset());
  const bool is_empty = std::find(size.begin(), size.end(), 0) != size.end();
  const size_t bytes = stride ? at::detail::computeStorageNbytes(size, *stride, itemsize, offset)
                              : at::detail::computeStorageNbytesContiguous(size, itemsize, offset);
  // Memory first: if there is none, the tensor keeps its size, and is never larger than its storage.
  if (const c10::Storage& storage = self->unsafe_storage(); is_empty) {
  } else if (!storage) {
    self->set_storage_keep_dtype(empty_storage(bytes, self->device().index()));
  } else if (bytes > storage.nbytes()) {
    TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
    overrides().resize_storage.get()(storage, bytes);
  }
  if (stride) {
    self->set_sizes_and_strides(size, *stride);
  } else {
    self->set_sizes_contiguous(size);
  }
}

Span span_of(const at::Tensor& tensor) {
  const size_t itemsize = tensor.itemsize();
  const auto offset = static_cast<size_t>(tensor.storage_offset());
  return {offset * itemsize, at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), itemsize, offset)};
}

void check_span(const at::Tensor& tensor) {
  check_allocated(tensor);
  if (tensor.numel() == 0) return;
  const uint64_t end = span_of(tensor).end;
  TORCH_CHECK(end <= tensor.storage().nbytes(), "sizes ", tensor.sizes(), ", strides ", tensor.strides(), ", storage offset ",
              tensor.storage_offset(), ", and itemsize ", tensor.itemsize(), " requiring a storage size of ", end,
              " are out of bounds for storage of size ", tensor.storage().nbytes(), " on ", tensor.device(),
              ". Resize the storage before the tensor is used again");
}

at::Tensor without_repeats(const at::Tensor& tensor) {
  at::DimVector sizes(tensor.sizes());
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (tensor.strides()[i] == 0 && sizes[i] > 1) sizes[i] = 1;
  }
  if (tensor.sizes() == at::IntArrayRef(sizes)) return tensor;
  at::Tensor once = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  once.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, tensor.strides(), tensor.storage_offset());
  return once;
}

bool fills_uninitialized() {
  at::Context& context = at::globalContext();
  return C10_UNLIKELY(context.deterministicAlgorithms()) && context.deterministicFillUninitializedMemory();
}

void fill_uninitialized(const at::Tensor& tensor) {
  const c10::ScalarType dtype = tensor.scalar_type();
  if (tensor.numel() == 0) return;
  if ((c10::isFloatingType(dtype) && dtype != c10::ScalarType::Float4_e2m1fn_x2) || c10::isComplexType(dtype)) {
    tensor.fill_(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  switch (dtype) {
    case c10::kBool:
      tensor.fill_(true);
      break;
    case c10::kByte:
      tensor.fill_(std::numeric_limits<uint8_t>::max());
      break;
    case c10::kChar:
      tensor.fill_(std::numeric_limits<int8_t>::max());
      break;
    case c10::kShort:
      tensor.fill_(std::numeric_limits<int16_t>::max());
      break;
    case c10::kInt:
      tensor.fill_(std::numeric_limits<int32_t>::max());
      break;
    case c10::kLong:
      tensor.fill_(std::numeric_limits<int64_t>::max());
      break;
    case c10::kUInt16:
      tensor.fill_(std::numeric_limits<uint16_t>::max());
      break;
    case c10::kUInt32:
      tensor.fill_(static_cast<int64_t>(std::numeric_limits<uint32_t>::max()));
      break;
    case c10::kUInt64:
      tensor.fill_(c10::Scalar(std::numeric_limits<uint64_t>::max()));
      break;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "\"fill_empty_deterministic_\" not implemented for '", dtype,
                                  "'; disable torch.utils.deterministic.fill_uninitialized_memory");
  }
}

}  // namespace backplane
