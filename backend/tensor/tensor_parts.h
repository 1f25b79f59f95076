// tensor/tensor_parts.h: tensors whose memory is not one strided block: sparse, quantized, nested and zero ones; takes them apart and
// builds them on another device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace backplane {

enum class TensorKind : uint8_t {
  dense,       // strided, of one storage
  sparse,      // COO: indices and values
  compressed,  // CSR, CSC, BSR, BSC: compressed indices, plain indices, values
  quantized,   // a storage and a quantizer, which has scales and zero points if it is per channel
  nested,      // a storage; the sizes, strides and offsets of its tensors are always on the CPU
  zero,        // known to be zero, and immutable: no memory
};

TensorKind kind_of(const at::Tensor& tensor);

// False for tensors that cannot be moved through the CPU, such as oneDNN's opaque tensors.
bool has_kind(const at::Tensor& tensor);

// Inline, because it is called for every tensor of every fallback.
inline bool is_dense_kind(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet others({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr, c10::DispatchKey::Quantized,
                                        c10::DispatchKey::NestedTensor, c10::DispatchKey::ZeroTensor});
  return !tensor.key_set().has_any(others) && C10_LIKELY(tensor.unsafeGetTensorImpl()->has_storage());
}

// The memory of a compound tensor: dense tensors in the order above, or a storage, or both.
struct Memory {
  c10::SmallVector<at::Tensor, 3> tensors;
  c10::Storage storage;
};

Memory memory_of(const at::Tensor& compound);

// A tensor on the device of `memory` that is otherwise like `like`. `device`: kDevice with an index, or the CPU.
at::Tensor compound_tensor(const at::Tensor& like, const Memory& memory, c10::Device device);

// Makes self the counterpart of `like` on another device: its sizes, and `memory` as memory. Both must be of one kind.
void assign_compound(const at::Tensor& self, const at::Tensor& like, const Memory& memory);

}  // namespace backplane
