// tensor/tensor_parts.cpp: the classes of torch's tensors, and the parts of each.
#include "tensor/tensor_parts.h"

#ifndef AT_PER_OPERATOR_HEADERS  // or SparseTensorImpl.h includes every operator
#define AT_PER_OPERATOR_HEADERS
#define BACKPLANE_UNDEF_PER_OPERATOR_HEADERS
#endif
#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#ifdef BACKPLANE_UNDEF_PER_OPERATOR_HEADERS
#undef BACKPLANE_UNDEF_PER_OPERATOR_HEADERS
#undef AT_PER_OPERATOR_HEADERS
#endif

#include "tensor/tensors.h"

namespace backplane {
namespace tensor_parts_impl {
namespace {

template <typename Impl>
Impl* impl_of(const at::Tensor& tensor) {
  return static_cast<Impl*>(tensor.unsafeGetTensorImpl());
}

// The key set of a layout, on the CPU or the device.
c10::DispatchKeySet keys(c10::DispatchKey cpu, c10::DispatchKey device_key, c10::Device device) {
  return c10::DispatchKeySet(device.is_cpu() ? cpu : device_key);
}

// NULL for a quantizer whose parameters are numbers. By type, since an unknown quantizer has no scheme.
const at::PerChannelAffineQuantizer* per_channel(const at::QuantizerPtr& quantizer) {
  return dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
}

// A quantizer with its parameters on another device. A quantizer with numbers can be shared.
at::QuantizerPtr quantizer_with(const at::QuantizerPtr& like, const Memory& memory) {
  const auto* from = per_channel(like);
  if (from == nullptr) return like;
  const at::Tensor& scales = memory.tensors[0];
  const at::Tensor& zero_points = memory.tensors[1];
  if (like->qscheme() == c10::kPerChannelAffine) {
    return c10::make_intrusive<at::PerChannelAffineQuantizer>(like->scalar_type(), scales, zero_points, from->axis());
  }
  return c10::make_intrusive<at::PerChannelAffineFloatQParamsQuantizer>(like->scalar_type(), scales, zero_points, from->axis());
}

at::Tensor sparse_tensor(const at::Tensor& like, const Memory& memory, c10::Device device) {
  at::Tensor self = at::detail::make_tensor<at::SparseTensorImpl>(
      keys(c10::DispatchKey::SparseCPU, c10::DispatchKey::SparsePrivateUse1, device), like.dtype());
  assign_compound(self, like, memory);
  return self;
}

at::Tensor compressed_tensor(const at::Tensor& like, const Memory& memory, c10::Device device) {
  at::Tensor self = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      keys(c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::SparseCsrPrivateUse1, device), device, like.layout(), like.dtype());
  assign_compound(self, like, memory);
  // _sparse_mm_reduce_impl checks whether there will be a backward, and only then saves what it requires.
  if (device.is_cpu() && like.requires_grad()) self.set_requires_grad(true);
  return self;
}

at::Tensor quantized_tensor(const at::Tensor& like, const Memory& memory, c10::Device device) {
  at::Tensor self = at::detail::make_tensor<at::QTensorImpl>(
      c10::Storage(memory.storage), keys(c10::DispatchKey::QuantizedCPU, c10::DispatchKey::QuantizedPrivateUse1, device), like.dtype(),
      quantizer_with(impl_of<at::QTensorImpl>(like)->quantizer(), memory));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return self;
}

at::Tensor nested_tensor(const at::Tensor& like, const Memory& memory, c10::Device device) {
  const auto* from = impl_of<at::native::NestedTensorImpl>(like);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      memory.storage, keys(c10::DispatchKey::NestedTensorCPU, c10::DispatchKey::NestedTensorPrivateUse1, device) | c10::autograd_nested,
      like.dtype(), from->get_nested_sizes(), from->get_nested_strides(), from->get_storage_offsets());
}

at::Tensor zero_like(const at::Tensor& like, c10::Device device) {
  // Views of it are checked against the size of its storage.
  const size_t elements = at::detail::computeStorageNbytes(like.sizes(), like.strides(), 1, static_cast<size_t>(like.storage_offset()));
  at::Tensor self = zero_tensor({static_cast<int64_t>(elements)}, like.scalar_type(), device);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) self._set_conj(true);
  if (like.is_neg()) self._set_neg(true);
  return self;
}

}  // namespace
}  // namespace tensor_parts_impl

bool has_kind(const at::Tensor& tensor) {
  if (tensor.is_sparse() || tensor.layout() == c10::kSparseCsr || tensor.layout() == c10::kSparseCsc ||
      tensor.layout() == c10::kSparseBsr || tensor.layout() == c10::kSparseBsc) {
    return true;
  }
  return (tensor.layout() == c10::kStrided || tensor.is_nested()) && tensor.unsafeGetTensorImpl()->has_storage();
}

TensorKind kind_of(const at::Tensor& tensor) {
  if (is_dense_kind(tensor)) return TensorKind::dense;
  if (tensor._is_zerotensor()) return TensorKind::zero;
  if (tensor.is_quantized()) return TensorKind::quantized;
  if (tensor.is_nested()) return TensorKind::nested;
  return tensor.is_sparse() ? TensorKind::sparse : TensorKind::compressed;
}

Memory memory_of(const at::Tensor& compound) {
  Memory memory;
  switch (kind_of(compound)) {
    case TensorKind::sparse: {
      const auto* impl = tensor_parts_impl::impl_of<at::SparseTensorImpl>(compound);
      memory.tensors = {impl->indices(), impl->values()};
      break;
    }
    case TensorKind::compressed: {
      const auto* impl = tensor_parts_impl::impl_of<at::SparseCsrTensorImpl>(compound);
      memory.tensors = {impl->compressed_indices(), impl->plain_indices(), impl->values()};
      break;
    }
    case TensorKind::quantized: {
      const at::QuantizerPtr quantizer = tensor_parts_impl::impl_of<at::QTensorImpl>(compound)->quantizer();
      if (const auto* per_channel = tensor_parts_impl::per_channel(quantizer)) {
        memory.tensors = {per_channel->scales(), per_channel->zero_points()};
      }
      memory.storage = compound.unsafeGetTensorImpl()->unsafe_storage();
      break;
    }
    case TensorKind::nested:
    case TensorKind::dense:
      memory.storage = compound.unsafeGetTensorImpl()->unsafe_storage();
      break;
    case TensorKind::zero:
      break;
  }
  return memory;
}

at::Tensor compound_tensor(const at::Tensor& like, const Memory& memory, c10::Device device) {
  switch (kind_of(like)) {
    case TensorKind::sparse:
      return tensor_parts_impl::sparse_tensor(like, memory, device);
    case TensorKind::compressed:
      return tensor_parts_impl::compressed_tensor(like, memory, device);
    case TensorKind::quantized:
      return tensor_parts_impl::quantized_tensor(like, memory, device);
    case TensorKind::nested:
      return tensor_parts_impl::nested_tensor(like, memory, device);
    case TensorKind::zero:
      return tensor_parts_impl::zero_like(like, device);
    case TensorKind::dense:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "a dense tensor is not a compound one");
}

void assign_compound(const at::Tensor& self, const at::Tensor& like, const Memory& memory) {
  switch (kind_of(like)) {
    case TensorKind::sparse: {
      const auto* from = tensor_parts_impl::impl_of<at::SparseTensorImpl>(like);
      auto* impl = tensor_parts_impl::impl_of<at::SparseTensorImpl>(self);
      impl->raw_resize_(from->sparse_dim(), from->dense_dim(), like.sizes());
      impl->set_indices_and_values_unsafe(memory.tensors[0], memory.tensors[1]);
      impl->set_coalesced(from->coalesced());
      break;
    }
    case TensorKind::compressed:
      tensor_parts_impl::impl_of<at::SparseCsrTensorImpl>(self)->set_member_tensors(memory.tensors[0], memory.tensors[1], memory.tensors[2],
                                                                                    like.sizes());
      break;
    case TensorKind::quantized: {
      auto* impl = tensor_parts_impl::impl_of<at::QTensorImpl>(self);
      if (!memory.storage.is_alias_of(impl->unsafe_storage())) impl->set_storage_keep_dtype(memory.storage);
      impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
      impl->set_quantizer_(tensor_parts_impl::quantizer_with(tensor_parts_impl::impl_of<at::QTensorImpl>(like)->quantizer(), memory));
      break;
    }
    case TensorKind::nested:
    case TensorKind::dense: {
      c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
      if (!memory.storage.is_alias_of(impl->unsafe_storage())) impl->set_storage_keep_dtype(memory.storage);
      break;
    }
    case TensorKind::zero:
      TORCH_CHECK(false, "ZeroTensors are immutable. Please use the materialized zero tensor obtained using .clone()");
  }
}

}  // namespace backplane
