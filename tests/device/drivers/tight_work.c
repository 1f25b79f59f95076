/* tests/device/drivers/tight_work.c: a shim that refuses the next `refusals` copies and fills, as out of memory. Used through ctypes. */
#include "shim.h"

BP_EXPORT int32_t refusals = 0;
BP_EXPORT int32_t freed = 0; /* calls of free and host_free */

static int32_t refused(void) {
  if (__atomic_load_n(&refusals, __ATOMIC_RELAXED) == 0) return 0;
  __atomic_sub_fetch(&refusals, 1, __ATOMIC_RELAXED);
  return 1;
}

static int32_t tight_copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                          uint64_t bytes, uint32_t flags) {
  if (refused()) return BP_OUT_OF_MEMORY;
  return inner->copy(self, device, stream, dst, dst_device, src, src_device, bytes, flags);
}

static int32_t tight_copy_async(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                                int32_t src_device, uint64_t bytes, uint32_t flags) {
  if (refused()) return BP_OUT_OF_MEMORY;
  return inner->copy_async(self, device, stream, dst, dst_device, src, src_device, bytes, flags);
}

static int32_t tight_fill(void* self, int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t size, uint64_t count,
                          uint32_t flags) {
  if (refused()) return BP_OUT_OF_MEMORY;
  return inner->fill(self, device, stream, dst, pattern, size, count, flags);
}

static int32_t counted_free(void* self, int32_t device, uint64_t address) {
  __atomic_add_fetch(&freed, 1, __ATOMIC_RELAXED);
  return inner->free(self, device, address);
}

static int32_t counted_host_free(void* self, void* ptr) {
  __atomic_add_fetch(&freed, 1, __ATOMIC_RELAXED);
  return inner->host_free(self, ptr);
}

static void change(const bp_host* host) {
  table.copy = tight_copy;
  table.copy_async = tight_copy_async;
  table.fill = tight_fill;
  table.free = counted_free;
  table.host_free = counted_host_free;
}
