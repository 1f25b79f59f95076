/* refuse_memory.c: preloaded, lets every aligned allocation of one size fail while that size is set. */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

static _Atomic size_t refused;
static _Atomic int refusals;

void refuse_memory(size_t bytes) { refused = bytes; }

int refusals_so_far(void) { return refusals; }

int posix_memalign(void** result, size_t alignment, size_t bytes) {
  static int (*allocate)(void**, size_t, size_t);
  if (bytes != 0 && bytes == refused) {
    ++refusals;
    return ENOMEM;
  }
  if (allocate == NULL) allocate = (int (*)(void**, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
  return allocate(result, alignment, bytes);
}
