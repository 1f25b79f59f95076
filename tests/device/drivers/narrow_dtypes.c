/* tests/device/drivers/narrow_dtypes.c: a shim under which the device computes in float32 alone, as its properties say. */
#include <stdlib.h>

#include <backplane/driver.h>

static const bp_driver* inner = NULL;
static bp_driver table;

static int32_t narrow_properties(void* self, int32_t device, bp_device_properties* out) {
  const int32_t status = inner->device_properties(self, device, out);
  if (status == BP_OK) out->dtypes = BP_DTYPE_FLOAT32;
  return status;
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  inner = host->inner;
  table = *inner;
  table.device_properties = narrow_properties;
  *out = &table;
  return BP_OK;
}
