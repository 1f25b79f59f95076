// torch/distributed.h: differences between versions of torch's c10d. Separate from compat.h, because c10d's headers include all of ATen.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "torch/compat.h"

// Backend::Options::clone. Unnecessary when 2.14 is the oldest.
#if BACKPLANE_TORCH_AT_LEAST(2, 14)
#define BACKPLANE_OVERRIDE_FROM_2_14 override
#else
#define BACKPLANE_OVERRIDE_FROM_2_14
#endif

namespace backplane::compat {

// It has another name since 2.13, or 2.12. Unnecessary when 2.13 is the oldest.
#if BACKPLANE_TORCH_AT_LEAST(2, 13)
using PreMulSumSupplement = c10d::PreMulSumSupplement;
#else
using PreMulSumSupplement = c10d::NCCLPreMulSumSupplement;
#endif

// Unnecessary when 2.12 is the oldest.
#if BACKPLANE_TORCH_AT_LEAST(2, 12)
inline constexpr auto kReduceScatterTensorCoalesced = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#else
inline constexpr auto kReduceScatterTensorCoalesced = c10d::OpType::COALESCED;
#endif

}  // namespace backplane::compat
