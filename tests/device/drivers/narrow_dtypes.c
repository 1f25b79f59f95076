/* tests/device/drivers/narrow_dtypes.c: a shim whose device's properties list float32 alone. */
#include "shim.h"

static int32_t narrow_properties(void* self, int32_t device, bp_device_properties* out) {
  const int32_t status = inner->device_properties(self, device, out);
  if (status == BP_OK) out->dtypes = BP_DTYPE_FLOAT32;
  return status;
}

static void change(const bp_host* host) { table.device_properties = narrow_properties; }
