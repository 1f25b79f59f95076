/* tests/device/drivers/shim.h: a shim that replaces entries of the inner driver's table. Each includes this, and defines `change`. */
#include <stdlib.h>
#include <string.h>

#include <backplane/driver.h>

static const bp_driver* inner = NULL;
static bp_driver table;

/* Replaces entries of the table. These, and those that stay, get the inner driver's self. */
static void change(const bp_host* host);

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  inner = host->inner;
  table = *inner;
  change(host);
  *out = &table;
  return BP_OK;
}
