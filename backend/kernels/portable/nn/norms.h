// kernels/portable/nn/norms.h: what layer norm shares with batch and group norm.
//
// Statistics are in float32 for half types, as the core's defaults for layer and batch norm have them (aten/normalization.cpp); of group
// norm in the dtype that the CPU gives them.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/portable/unit/call.h"

namespace backplane::portable {

// A vector of that size or nothing, of the dtype or, beside half types, of float32.
bool is_parameter(const at::Tensor& tensor, int64_t size, const at::Tensor& input);

bool is_gradient_of(const at::Tensor& tensor, const at::Tensor& input);

at::Tensor dense_in(const at::Tensor& tensor, c10::ScalarType dtype);

}  // namespace backplane::portable
