// tests/device/cpp/pluggable.cpp: an allocator in a shared object, over the driver's memory, that counts, and fails on request.
#include <backplane/driver_memory.h>
#include <sys/types.h>

extern "C" {

long allocs = 0, frees = 0, bytes = 0, odd_sizes = 0, largest = -1; /* largest: more than so many are refused; -1: none are */
int misplace = 0;                                                   /* gives addresses that are not aligned */
void* last_stream = nullptr;

void* counting_alloc(ssize_t size, int device, void* stream) {
  if (largest >= 0 && size > largest) return nullptr;
  if (size % 512 != 0) __atomic_add_fetch(&odd_sizes, 1, __ATOMIC_RELAXED);
  char* const memory = static_cast<char*>(backplane_driver_alloc(size, device));
  if (memory == nullptr) return nullptr;
  last_stream = stream;
  __atomic_add_fetch(&allocs, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&bytes, size, __ATOMIC_RELAXED);
  return memory + misplace;
}

void counting_free(void* memory, ssize_t size, int device, void*) {
  __atomic_add_fetch(&frees, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&bytes, -size, __ATOMIC_RELAXED);
  backplane_driver_free(static_cast<char*>(memory) - misplace, device);
}
}  // extern "C"
