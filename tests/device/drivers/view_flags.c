/* tests/device/drivers/view_flags.c: a shim whose bp.host_view has the flags that its option names ("view_flags.flags=2"), and that counts
   views; ctypes reads the counters. It shows what a driver gets that does less than the one below it. */
#include <stdlib.h>
#include <string.h>

#include <backplane/driver/host_view.h>

static const bp_driver* inner = NULL;
static const bp_host_view* below = NULL;
static uint32_t flags = 0;
static bp_driver table;
static bp_host_view view;

BP_EXPORT int64_t mapped = 0;
BP_EXPORT int64_t unmapped = 0;

static int32_t map(void* self, int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
  (void)self;
  __atomic_add_fetch(&mapped, 1, __ATOMIC_RELAXED);
  return below->map(below->head.self, device, address, bytes, access, out);
}

static int32_t unmap(void* self, int32_t device, uint64_t address, void* ptr) {
  (void)self;
  __atomic_add_fetch(&unmapped, 1, __ATOMIC_RELAXED);
  return below->unmap(below->head.self, device, address, ptr);
}

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const int32_t status = inner->query_ext ? inner->query_ext(self, id, version, out) : BP_UNSUPPORTED;
  if (status != BP_OK || strcmp(id, BP_HOST_VIEW_ID) != 0) return status;
  below = (const bp_host_view*)*out;
  view = *below;
  view.head.flags = flags;
  view.map = map;
  view.unmap = unmap;
  *out = &view.head;
  return BP_OK;
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  inner = host->inner;
  flags = strchr(host->config, '=') ? (uint32_t)strtoul(strchr(host->config, '=') + 1, NULL, 0) : 0;
  table = *inner; /* entries that go straight through get the inner driver's self */
  table.query_ext = query_ext;
  *out = &table;
  return BP_OK;
}
