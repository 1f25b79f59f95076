// torch/compat.h: all differences between torch versions that affect the core, each with the version that makes it unnecessary.
#pragma once

#include <torch/headeronly/version.h>

#define BACKPLANE_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

// Guard methods that an older c10 does not declare: isStreamCapturing, getStreamNativeHandle. Unnecessary when 2.13 is the oldest.
#if BACKPLANE_TORCH_AT_LEAST(2, 13)
#define BACKPLANE_OVERRIDE_IF_PRESENT override
#else
#define BACKPLANE_OVERRIDE_IF_PRESENT
#endif

// torch.accelerator.Graph and its interface. Unnecessary when 2.13 is the oldest.
#if defined(__has_include) && __has_include(<ATen/core/GraphImplInterface.h>)
#define BACKPLANE_TORCH_HAS_GRAPHS 1
#else
#define BACKPLANE_TORCH_HAS_GRAPHS 0
#endif

// Whether torch's pinned cache has private pools. Without them pinned memory that is allocated in a capture is reused when it is freed.
// Unnecessary when 2.13 is the oldest.
#define BACKPLANE_PINNED_CACHE_HAS_POOLS BACKPLANE_TORCH_AT_LEAST(2, 13)

namespace backplane::compat {

// Whether torch's pinned cache supports limits of rounding and caching. Unnecessary when 2.13 is the oldest.
inline constexpr bool kPinnedCacheHasLimits = BACKPLANE_TORCH_AT_LEAST(2, 13);

// Operators that torch composes of others for an unknown device, with results that differ from the CPU's. Unnecessary when torch's own
// composition is fixed.
inline constexpr const char* kComposedOtherwise[] = {
    "mse_loss",
    "smooth_l1_loss",    // an output of the reduced shape goes to the out= form, which warns that it resizes it (2.11 to 2.13)
    "_linalg_solve_ex",  // asserts where the CPU checks that all tensors are on one device (2.11 to 2.13)
    "mode.values",       // its out= form refuses every device but CPU, CUDA and XPU (2.11 to 2.13)
};

// Operators that autocast computes in float32 and torch's header does not list. Unnecessary once it does.
inline constexpr const char* kUnlistedFloat32[] = {"linalg_matrix_sqrth"};  // of 2.15

// Whether torch has _upsample_lanczos2d_aa. Unnecessary when 2.12 is the oldest.
inline constexpr bool kHasLanczos = BACKPLANE_TORCH_AT_LEAST(2, 12);

}  // namespace backplane::compat
