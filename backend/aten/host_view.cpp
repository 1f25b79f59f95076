// aten/host_view.cpp: maps a tensor's storage for the host and wraps it as a CPU tensor that keeps the source alive.
#include "aten/host_view.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <backplane/kernel.h>

#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"

namespace backplane {
at::Tensor host_view(const at::Tensor& source) {
  TORCH_CHECK(source.device().type() == kDevice, "host_view: expected a tensor of ", device_name(), ", got one of ", source.device());
  const bp_host_view* view = open_driver().host_view;
  TORCH_CHECK_NOT_IMPLEMENTED(view != nullptr && (view->head.flags & BP_HOST_VIEW_COHERENT) != 0, "host_view: the driver of ",
                              device_name(), " has no coherent host view of its memory (bp.host_view): copy with .cpu()");
  TORCH_CHECK(!source.is_conj() && !source.is_neg(),
              "host_view: the tensor has a lazy conjugate or negative bit: call .resolve_conj() or .resolve_neg()");
  const c10::DeviceIndex device = source.device().index();
  const auto options = source.options().device(c10::DeviceType::CPU).requires_grad(false);
  const auto address = device_ptr<char>(source).address;  // the host may write: a lazy clone gets its own memory first
  synchronize_device(device);
  const size_t bytes = at::detail::computeStorageNbytes(source.sizes(), source.strides(), source.element_size());
  if (bytes == 0) {
    return at::from_blob(nullptr, source.sizes(), source.strides(), [source](void*) {}, options);
  }
  void* mapped = nullptr;
  call<&bp_host_view::map>(device, address, bytes, int32_t{BP_ACCESS_READ_WRITE}, &mapped);
  const auto storage = source.storage();  // not the tensor: its autograd graph need not live
  return at::from_blob(
      mapped, source.sizes(), source.strides(),
      [storage, device, address](void* ptr) { call_noexcept<&bp_host_view::unmap>(device, address, ptr); }, options);
}

}  // namespace backplane
