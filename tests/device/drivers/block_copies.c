/* tests/device/drivers/block_copies.c: the minimal driver, whose copies take only whole blocks of 64 bytes, and none between two devices:
 * what the core must do with the others. */
#include <backplane/driver.h>

#define bp_driver_get minimal_driver_get
#include "../../../examples/minimal_driver/minimal_driver.c"
#undef bp_driver_get

enum { BLOCK = 64 };

static int32_t block_properties(void* self, int32_t device, bp_device_properties* out) {
  const int32_t status = device_properties(self, device, out);
  if (status == BP_OK) out->copy_alignment = BLOCK;
  return status;
}

static int32_t block_copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                          uint64_t bytes, uint32_t flags) {
  const int to_device = dst_device != BP_HOST_DEVICE, from_device = src_device != BP_HOST_DEVICE;
  const uint64_t device_side = (to_device ? dst : 0) | (from_device ? src : 0);
  if ((device_side | bytes) % BLOCK) return fail(BP_INVALID_ARGUMENT, "copy: not whole blocks");
  if (to_device && from_device && dst_device != src_device) return fail(BP_UNSUPPORTED, "copy: not between two devices");
  return copy(self, device, stream, dst, dst_device, src, src_device, bytes, flags);
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  const int32_t status = minimal_driver_get(host, out);
  if (status != BP_OK) return status;
  minimal* me = (*out)->self;
  me->table.device_properties = block_properties;
  me->table.copy = block_copy;
  return BP_OK;
}
