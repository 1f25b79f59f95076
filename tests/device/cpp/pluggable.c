/* tests/device/cpp/pluggable.c: an allocator out of a shared object, over the driver's memory, that counts, and fails when it is told to.
 */
#include <stddef.h>

#include <backplane/driver_memory.h>

long allocs = 0, frees = 0, bytes = 0, odd_sizes = 0, largest = -1; /* largest: more than so many are refused; -1: none are */
int misplace = 0;                                                   /* gives addresses that are not aligned */
void* last_stream = NULL;

void* counting_alloc(ssize_t size, int device, void* stream) {
  if (largest >= 0 && size > largest) return NULL;
  if (size % 512 != 0) __atomic_add_fetch(&odd_sizes, 1, __ATOMIC_RELAXED);
  char* const memory = backplane_driver_alloc(size, device);
  if (memory == NULL) return NULL;
  last_stream = stream;
  __atomic_add_fetch(&allocs, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&bytes, size, __ATOMIC_RELAXED);
  return memory + misplace;
}

void counting_free(void* memory, ssize_t size, int device, void* stream) {
  (void)stream;
  __atomic_add_fetch(&frees, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&bytes, -size, __ATOMIC_RELAXED);
  backplane_driver_free((char*)memory - misplace, device);
}
