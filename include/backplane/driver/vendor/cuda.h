/* backplane/driver/vendor/cuda.h: group "backplane.cuda" version 1 of the SDK's CUDA driver, for kernels that call NVIDIA's libraries.
 *
 * If the group is offered, streams are CUstreams and memory is CUDA's, in the primary contexts. The core and the shims do not know it:
 * drivers may offer groups of their own.
 */
#pragma once

#include "../../driver.h"

#define BP_CUDA_ID "backplane.cuda"
#define BP_CUDA_VERSION 1u

typedef struct bp_cuda {
  bp_ext head;

  /* CUDA's number of a device. Creates no context. errors: INVALID_DEVICE. */
  int32_t (*ordinal)(void* self, int32_t device, int32_t* out);
} bp_cuda;

#define BP_CUDA_SLOTS(X) X(ordinal)
