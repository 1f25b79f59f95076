// aten/host_view.h: a CPU tensor over a device tensor's own memory, for devices whose memory the host can access.
#pragma once

#include <ATen/core/Tensor.h>

namespace backplane {

// Same sizes, strides and dtype; no copy, no ownership: the view keeps the source's storage alive, and that storage cannot be resized
// meanwhile ("Trying to resize storage that is not resizable"). Waits for the current stream of the source's device; the caller must order
// later work. The view has no gradient and is not an inference tensor, and its version counter is its own. NotImplementedError if the
// driver has no coherent host view. Refused while that stream captures a graph. Any thread, without the GIL.
at::Tensor host_view(const at::Tensor& source);

// Whether the loaded driver supports such views (bp.host_view, coherent). Opens nothing.
bool has_host_view();

// Throws if `source` cannot have a host view, in place or as a copy: a tensor of another device, without memory of its own, not dense, or
// with a lazy bit; or if the current stream of its device captures a graph, which cannot record work of the host.
void check_host_view(const at::Tensor& source);

}  // namespace backplane
