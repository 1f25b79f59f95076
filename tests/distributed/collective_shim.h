/* tests/distributed/collective_shim.h: a shim that changes entries of bp.collective; each includes this, and defines `change`. */
#include <string.h>

#include <backplane/driver/collective.h>

static const bp_driver* inner = NULL;
static const bp_collective* below = NULL;
static bp_driver table;
static bp_collective collective;

/* Replaces entries; those that stay get the inner driver's self, and so do these. */
static void change(bp_collective* entries);

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const int32_t found = inner->query_ext(self, id, version, out);
  if (found != BP_OK || strcmp(id, BP_COLLECTIVE_ID) != 0) return found;
  below = (const bp_collective*)*out;
  collective = *below;
  change(&collective);
  *out = &collective.head;
  return BP_OK;
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  inner = host->inner;
  table = *inner;
  table.query_ext = query_ext;
  *out = &table;
  return BP_OK;
}
