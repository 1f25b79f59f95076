// aten/shallow_copy.cpp: `parameter.data = tensor` across CPU and device, and with it Module.to(), which then keeps its parameters'
// identity.
//
// c10 lists the device types whose tensors may take each other's contents in place (TensorImpl::has_compatible_shallow_copy_type), and
// leaves out PrivateUse1, whose backends may have a TensorImpl of their own. This one has torch's. Without this, Module.to() makes new
// parameters: tied weights are no longer tied, and an optimizer made before goes on with the old ones.
#include <ATen/core/Tensor.h>

#include "dispatch/core_kernels.h"
#include "tensor/tensors.h"

namespace backplane::shallow_copy_impl {
namespace {

// Dense, and of this device or of one in c10's list: the CPU stands for those.
bool is_listed(const at::Tensor& tensor) {
  constexpr auto kDense = c10::DispatchKeySet(c10::DispatchKey::Dense);
  constexpr auto kBackends = c10::DispatchKeySet({c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit});
  return tensor.key_set().has_any(kDense) && tensor.key_set().has_any(kBackends);
}

// Sparse tensors are refused by their class itself.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return (is_listed(self) && is_listed(from)) || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) { m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type); }

}  // namespace backplane::shallow_copy_impl
