/* tests/distributed/late_status.c: a shim that tells late how a communicator is: what it says may be past by then. */
#include <string.h>
#include <time.h>

#include <backplane/driver/collective.h>

static const bp_driver* inner = NULL;
static const bp_collective* below = NULL;
static bp_driver table;
static bp_collective collective;

static int32_t status(void* self, bp_comm* comm, int32_t* out, char* text, uint64_t size) {
  const int32_t found = below->status(self, comm, out, text, size);
  const struct timespec late = {0, 300000000};
  nanosleep(&late, NULL);
  return found;
}

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const int32_t found = inner->query_ext(self, id, version, out);
  if (found != BP_OK || strcmp(id, BP_COLLECTIVE_ID) != 0) return found;
  below = (const bp_collective*)*out;
  collective = *below; /* entries that go straight through get the inner driver's self, and so does ours */
  collective.status = status;
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
