/* compiler_driver.c: the minimal driver and a compiler: with it the SDK's portable kernels run on the device.
 *
 * In your own driver the three steps are the same: a `compiler` in the instance, compiler_init() in bp_driver_get(), and query_ext. */
#define bp_driver_get minimal_driver_get
#include "../minimal_driver/minimal_driver.c"
#undef bp_driver_get

#include "compiler.h"

typedef struct driver {
  minimal device; /* the nine functions know this part alone */
  compiler compiler;
} driver;

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  return compiler_query(&((driver*)self)->compiler, id, version, out);
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  const bp_driver* table;
  const int32_t status = minimal_driver_get(host, &table);
  if (status != BP_OK) return status;
  driver* me = realloc(table->self, sizeof *me);
  if (!me) return free(table->self), BP_UNSUPPORTED;
  compiler_init(&me->compiler, me->device.devices, fail);
  me->device.table.self = me;
  me->device.table.query_ext = query_ext;
  *out = &me->device.table;
  return BP_OK;
}
