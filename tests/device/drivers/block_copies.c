/* tests/device/drivers/block_copies.c: the minimal driver, with copies of whole blocks only, and none between two devices; the core stages
 * the others. A block has 64 bytes, and 16 on device ODD_DEVICE, if there is one. */
#include <backplane/driver.h>

#define bp_driver_get minimal_driver_get
#include "../../../examples/minimal_driver/minimal_driver.c"
#undef bp_driver_get

#ifndef ODD_DEVICE
#define ODD_DEVICE -1
#endif

static uint32_t block_of(int32_t device) { return device == ODD_DEVICE ? 16 : 64; }

static int32_t block_properties(void* self, int32_t device, bp_device_properties* out) {
  const int32_t status = device_properties(self, device, out);
  if (status == BP_OK) out->copy_alignment = block_of(device);
  return status;
}

static int32_t block_copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                          uint64_t bytes, uint32_t flags) {
  const int to_device = dst_device != BP_HOST_DEVICE, from_device = src_device != BP_HOST_DEVICE;
  if (to_device && (dst | src | bytes) % block_of(dst_device)) return fail(BP_INVALID_ARGUMENT, "copy: not whole blocks of the target's");
  if (from_device && (dst | src | bytes) % block_of(src_device)) return fail(BP_INVALID_ARGUMENT, "copy: not whole blocks");
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
