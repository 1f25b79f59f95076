// torch/compat.h: every difference between torch versions that the core knows, each with the version that makes it unnecessary.
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
