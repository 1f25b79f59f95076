// tensor/tensor_parts.h: tensors that are made of other memory than one strided block: sparse, quantized, nested and zero ones, taken apart
// and put together on another device.
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
  nested,      // a storage; sizes, strides and offsets of its tensors always lie on the CPU
  zero,        // known to be zero, and immutable: no memory at all
};

TensorKind kind_of(const at::Tensor& tensor);

// False for what has no way over the CPU, such as oneDNN's opaque tensors.
bool has_kind(const at::Tensor& tensor);

// Inline, because every tensor of every fallback is asked.
inline bool is_dense_kind(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet others({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr, c10::DispatchKey::Quantized,
                                        c10::DispatchKey::NestedTensor, c10::DispatchKey::ZeroTensor});
  return !tensor.key_set().has_any(others) && C10_LIKELY(tensor.unsafeGetTensorImpl()->has_storage());
}

// What a compound tensor's memory is: dense tensors in the order above, or a storage, or both.
struct Memory {
  c10::SmallVector<at::Tensor, 3> tensors;
  c10::Storage storage;
};

Memory memory_of(const at::Tensor& compound);

// A tensor on the device of `memory` that is otherwise `like` one. `device`: kDevice with an index, or the CPU.
at::Tensor compound_tensor(const at::Tensor& like, const Memory& memory, c10::Device device);

// Makes self what `like` is on another device: its sizes, and memory instead of its own. Both of one kind.
void assign_compound(const at::Tensor& self, const at::Tensor& like, const Memory& memory);

}  // namespace backplane
