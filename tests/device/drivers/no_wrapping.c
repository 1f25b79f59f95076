/* tests/device/drivers/no_wrapping.c: a shim that does not support streams of others, and whose texts have no end or are not UTF-8. */
#include "shim.h"

static int32_t endless_properties(void* self, int32_t device, bp_device_properties* out) {
  const int32_t status = inner->device_properties(self, device, out);
  if (status != BP_OK) return status;
  memset(out->name, 'n', sizeof out->name);
  memset(out->vendor, 'v', sizeof out->vendor);
  memset(out->driver_version, '\xff', sizeof out->driver_version); /* nor is it UTF-8 */
  memset(out->bus_id, 'b', sizeof out->bus_id);
  memset(out->uuid, 'u', sizeof out->uuid);
  return status;
}

/* More than a terabyte is refused, with a text in Latin-1 that is cut inside a character of UTF-8. */
static _Thread_local int refused = 0;

static int32_t refused_alloc(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
  refused = bytes > (uint64_t)1 << 40;
  return refused ? BP_INVALID_ARGUMENT : inner->alloc(self, device, bytes, flags, out);
}

static int32_t foreign_error(void* self, char* buf, uint64_t size) {
  static const char text[] = "Ger\xe4t voll, \xe2\x82";
  if (!refused) return inner->last_error(self, buf, size);
  strncpy(buf, text, size);
  return BP_OK;
}

static void change(const bp_host* host) {
  table.stream_from_native = NULL;
  table.device_properties = endless_properties;
  table.alloc = refused_alloc;
  table.last_error = foreign_error;
}
