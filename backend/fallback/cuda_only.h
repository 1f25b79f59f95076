// fallback/cuda_only.h: operators that only CUDA supports, by names of its libraries.
#pragma once

#include <string>

namespace backplane::fallback {

// What to use instead of "aten::cudnn_convolution", a sentence; "" for an operator that is not among them. docs/operators.md lists them.
std::string instead_of(const std::string& full_name);

}  // namespace backplane::fallback
