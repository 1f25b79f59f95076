/* tests/distributed/no_id.c: a shim whose driver makes no ids. */
#include <string.h>

#include <backplane/driver/collective.h>

static const bp_driver* inner = NULL;
static bp_driver table;
static bp_collective collective;

static int32_t make_id(void* self, int32_t device, void* out) {
  (void)self, (void)device, (void)out;
  return BP_INTERNAL;
}

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const int32_t found = inner->query_ext(self, id, version, out);
  if (found != BP_OK || strcmp(id, BP_COLLECTIVE_ID) != 0) return found;
  collective = *(const bp_collective*)*out; /* entries that go straight through get the inner driver's self */
  collective.make_id = make_id;
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
