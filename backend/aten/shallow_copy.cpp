// aten/shallow_copy.cpp: `parameter.data = tensor` across CPU and device, and with it Module.to(), which then preserves its parameters'
// identity.
//
// c10 lists the device types whose tensors may exchange their contents in place (TensorImpl::has_compatible_shallow_copy_type), and omits
// PrivateUse1, whose backends may have a TensorImpl of their own. This one uses torch's. Without this, Module.to() creates new parameters:
// tied weights are no longer tied, and an optimizer that was created before keeps the old ones.
#include <ATen/core/Tensor.h>

#include "dispatch/core_kernels.h"
#include "tensor/tensors.h"

namespace backplane::shallow_copy_impl {
namespace {

// Dense, and on this device or on one of c10's list: the CPU represents those.
bool is_listed(const at::Tensor& tensor) {
  constexpr auto kDense = c10::DispatchKeySet(c10::DispatchKey::Dense);
  constexpr auto kBackends = c10::DispatchKeySet({c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit});
  return tensor.key_set().has_any(kDense) && tensor.key_set().has_any(kBackends);
}

// The class of sparse tensors refuses them itself.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return (is_listed(self) && is_listed(from)) || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) { m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type); }

}  // namespace backplane::shallow_copy_impl
