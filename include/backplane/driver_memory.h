/* backplane/driver_memory.h: the driver's own memory, for the functions of a pluggable allocator (docs/memory.md). Pure C; the symbols are
 * in lib<device>.so. Any thread. */
#ifndef BACKPLANE_DRIVER_MEMORY_H
#define BACKPLANE_DRIVER_MEMORY_H

#include <sys/types.h>

#define BACKPLANE_DRIVER_MEMORY_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `size` bytes on a device, by torch's index. The address is a device address and a multiple of 512. NULL: out of memory, or
 * the call failed, which is logged. */
BACKPLANE_DRIVER_MEMORY_API void* backplane_driver_alloc(ssize_t size, int device);

/* Frees it after the device's work is complete, for which it waits. A no-op for NULL, in a forked child, and after the driver was
 * closed. */
BACKPLANE_DRIVER_MEMORY_API void backplane_driver_free(void* ptr, int device);

#ifdef __cplusplus
}
#endif

#endif
