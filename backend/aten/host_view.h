// aten/host_view.h: a CPU tensor over a device tensor's own memory, for devices whose memory the host reaches.
#pragma once

#include <ATen/core/Tensor.h>

namespace backplane {

// Same sizes, strides and dtype; no copy, no ownership: the view keeps the source's storage alive. Waits for the device's work; later work
// is the caller's to order. NotImplementedError when the driver has no coherent host view.
at::Tensor host_view(const at::Tensor& source);

}  // namespace backplane
