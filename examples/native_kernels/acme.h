/* acme.h: the runtime of an imaginary chip, as a vendor's own SDK offers it: memory, queues, fences, and kernels that are launched on a
 * queue. It knows nothing of PyTorch or Backplane, and has no way to run a function of the caller's.
 *
 * Sizes in bytes, times in nanoseconds. Any function from any thread. A NULL queue is the default one. */
#ifndef ACME_H
#define ACME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ACME_EXPORT __attribute__((visibility("default")))
#define ACME_FOREVER UINT64_MAX

typedef struct acme_queue acme_queue;
typedef struct acme_fence acme_fence;

ACME_EXPORT void* acme_alloc(uint64_t bytes); /* NULL: no memory is left */
ACME_EXPORT void acme_free(void* memory);

/* A queue's work runs in order, on the queue's own thread. Its end completes what is queued. */
ACME_EXPORT acme_queue* acme_queue_create(void);
ACME_EXPORT void acme_queue_destroy(acme_queue* queue);
ACME_EXPORT acme_queue* acme_default_queue(void);
ACME_EXPORT int acme_queue_idle(acme_queue* queue); /* 1: all of its work is done */

/* Signalled when the queue reaches it; signalled at first. 1: signalled, 0: not (or not in time). */
ACME_EXPORT acme_fence* acme_fence_create(void);
ACME_EXPORT void acme_fence_destroy(acme_fence* fence);
ACME_EXPORT void acme_fence_record(acme_queue* queue, acme_fence* fence);
ACME_EXPORT void acme_fence_wait_on_queue(acme_queue* queue, acme_fence* fence); /* the queue waits */
ACME_EXPORT int acme_fence_wait(acme_fence* fence, uint64_t timeout_ns);         /* the caller waits; 0 only asks */
ACME_EXPORT int64_t acme_fence_time(acme_fence* fence);                          /* of the latest signal */

/* ---- work ---- */

ACME_EXPORT void acme_copy(acme_queue* queue, void* dst, const void* src, uint64_t bytes);
ACME_EXPORT void acme_fill(acme_queue* queue, void* dst, const void* pattern, uint32_t pattern_size, uint64_t count);

/* out[i] = a[i] + alpha * b[i] */
ACME_EXPORT void acme_add(acme_queue* queue, float* out, const float* a, const float* b, float alpha, int64_t count);
/* out[i] = max(in[i], 0) */
ACME_EXPORT void acme_relu(acme_queue* queue, float* out, const float* in, int64_t count);

/* Moves elements of 1, 2, 4, 8 or 16 bytes between two strided layouts of the same sizes. Strides in bytes; at most ACME_DIMS. */
#define ACME_DIMS 8
typedef struct acme_layout {
  int64_t dims;
  int64_t sizes[ACME_DIMS];
  int64_t dst_strides[ACME_DIMS];
  int64_t src_strides[ACME_DIMS];
} acme_layout;
ACME_EXPORT void acme_move(acme_queue* queue, void* dst, const void* src, uint32_t element_bytes, const acme_layout* layout);

#ifdef __cplusplus
}
#endif
#endif
