// kernels/portable/nn/norms.h: shared by layer norm and batch and group norm.
//
// For half types, statistics of layer and batch norm are in float32, as in the core's defaults (aten/normalization.cpp); those of group
// norm have the CPU's dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/portable/unit/call.h"

namespace backplane::portable {

// Whether it is undefined or a vector of that size, of the input's dtype, or of float32 for half types.
bool is_parameter(const at::Tensor& tensor, int64_t size, const at::Tensor& input);

bool is_gradient_of(const at::Tensor& tensor, const at::Tensor& input);

at::Tensor dense_in(const at::Tensor& tensor, c10::ScalarType dtype);

}  // namespace backplane::portable
