/* backplane/driver/vendor/cuda.h: group "backplane.cuda" version 1 of the SDK's CUDA driver: what kernels that call NVIDIA's libraries ask.
 *
 * Its being there says that streams are CUstreams and memory is CUDA's, in the primary contexts. It is no group that the core or a shim
 * knows: drivers offer groups of their own in this way.
 */
#ifndef BACKPLANE_DRIVER_VENDOR_CUDA_H
#define BACKPLANE_DRIVER_VENDOR_CUDA_H

#include "../../driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BP_CUDA_ID "backplane.cuda"
#define BP_CUDA_VERSION 1u

typedef struct bp_cuda {
  bp_ext head;

  /* CUDA's number of a device. Creates no context. errors: INVALID_DEVICE. */
  int32_t (*ordinal)(void* self, int32_t device, int32_t* out);
} bp_cuda;

#ifdef __cplusplus
}
#endif
#endif
