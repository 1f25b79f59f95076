// backplane/convolution.h: the memory format of a convolution's results.
#pragma once

#include <ATen/core/Tensor.h>

namespace backplane {

// Of the result, and of both gradients: channels_last if the input or the weight is, as for torch's own devices. A kernel of
// convolution_overrideable or convolution_backward_overrideable must return this format: torch.compile plans with it.
inline c10::MemoryFormat convolution_format(const at::Tensor& input, const at::Tensor& weight) {
  const c10::MemoryFormat last = weight.dim() == 4   ? c10::MemoryFormat::ChannelsLast
                                 : weight.dim() == 5 ? c10::MemoryFormat::ChannelsLast3d
                                                     : c10::MemoryFormat::Contiguous;
  const bool is_last = input.suggest_memory_format() == last || weight.suggest_memory_format() == last;
  return is_last ? last : c10::MemoryFormat::Contiguous;
}

}  // namespace backplane
