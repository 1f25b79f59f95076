// aten/tensors.cpp: which bytes of its storage a tensor stands for.
#include "aten/tensors.h"

#include <backplane/kernel.h>

namespace backplane {

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

}  // namespace backplane
