// aten/host_view.h: a CPU tensor over a device tensor's own memory, for devices whose memory the host reaches.
#pragma once

#include <ATen/core/Tensor.h>

namespace backplane {

// Same sizes, strides and dtype; no copy, no ownership: the view keeps the source's storage alive, and that storage cannot be resized while
// it does ("Trying to resize storage that is not resizable"). Waits for the current stream of the source's device; later work is the
// caller's to order. The view has no gradient and is no inference tensor, and its version counter is its own.
// NotImplementedError when the driver has no coherent host view. Refused while that stream captures a graph. Any thread, without the GIL.
at::Tensor host_view(const at::Tensor& source);

// Whether the loaded driver has such views (bp.host_view, coherent). Opens nothing.
bool has_host_view();

// Throws for what a host view cannot be of, in place or as a copy: tensors of other devices, without memory of their own, not dense, with
// a lazy bit; and while the current stream of the tensor's device captures a graph, which cannot record what the host does.
void check_host_view(const at::Tensor& source);

}  // namespace backplane
