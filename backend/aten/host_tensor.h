// aten/host_tensor.h: what of a tensor a queued function needs to rebuild it, over the memory as the device reaches it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <backplane/kernel.h>
#include <c10/util/SmallVector.h>

namespace backplane {

// By value: sizes, strides, dtype, bits, address. The device's own work on a tensor of any dtype and layout is then an operator of the
// CPU's.
class TensorView {
 public:
  explicit TensorView(const at::Tensor& tensor, bool written)
      : address_(written ? device_ptr<char>(tensor).address : const_device_ptr<char>(tensor).address),
        sizes_(tensor.sizes().begin(), tensor.sizes().end()),
        strides_(tensor.strides().begin(), tensor.strides().end()),
        dtype_(tensor.scalar_type()),
        conj_(tensor.is_conj()),
        neg_(tensor.is_neg()) {}

  // Within a launched function only.
  at::Tensor host_tensor(const DeviceMemory& memory) const {
    at::Tensor tensor = at::from_blob(memory.at(address_), sizes_, strides_, c10::TensorOptions(dtype_).device(c10::kCPU));
    if (conj_) tensor._set_conj(true);
    if (neg_) tensor._set_neg(true);
    return tensor;
  }

 private:
  uint64_t address_;
  c10::SmallVector<int64_t, 5> sizes_;
  c10::SmallVector<int64_t, 5> strides_;
  c10::ScalarType dtype_;
  bool conj_;
  bool neg_;
};

}  // namespace backplane
