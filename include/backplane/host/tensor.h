// backplane/host/tensor.h: the operands of a queued function as tensors of the CPU, over the memory as the device reaches it. The device's
// own work on tensors of any dtype and layout is then a kernel of the CPU's:
//
//   launch(device, [in = TensorView(x, false), out = TensorView(y, true)](const DeviceMemory& memory) {
//     at::Tensor result = out.host_tensor(memory);
//     at::cpu::mm_out(result, in.host_tensor(memory), in.host_tensor(memory));
//   });
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <backplane/kernel.h>
#include <c10/util/SmallVector.h>

namespace backplane {

// By value: sizes, strides, dtype, conj and neg bits, address.
class TensorView {
 public:
  explicit TensorView(const at::Tensor& tensor, bool written)
      : address_(written ? device_ptr<char>(tensor).address : const_device_ptr<char>(tensor).address),
        sizes_(tensor.sizes().begin(), tensor.sizes().end()),
        strides_(tensor.strides().begin(), tensor.strides().end()),
        dtype_(tensor.scalar_type()),
        conj_(tensor.is_conj()),
        neg_(tensor.is_neg()) {}

  // Within a launched function only, which calls at::cpu:: or at::native:: functions, not operators: those follow the calling thread's
  // modes where streams are inline.
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
