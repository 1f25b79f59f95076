/* tests/device/drivers/view_flags.c: a shim whose bp.host_view has the flags that its option names ("view_flags.flags=2"), and that counts
   views, as a driver that supports less than its inner driver. The counters are read through ctypes. */
#include <backplane/driver/host_view.h>
#include "shim.h"

static const bp_host_view* inner_view = NULL;
static uint32_t flags = 0;
static bp_host_view view;

BP_EXPORT int64_t mapped = 0;
BP_EXPORT int64_t unmapped = 0;

static int32_t map(void* self, int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
  (void)self;
  __atomic_add_fetch(&mapped, 1, __ATOMIC_RELAXED);
  return inner_view->map(inner_view->head.self, device, address, bytes, access, out);
}

static int32_t unmap(void* self, int32_t device, uint64_t address, void* ptr) {
  (void)self;
  __atomic_add_fetch(&unmapped, 1, __ATOMIC_RELAXED);
  return inner_view->unmap(inner_view->head.self, device, address, ptr);
}

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const int32_t status = inner->query_ext ? inner->query_ext(self, id, version, out) : BP_UNSUPPORTED;
  if (status != BP_OK || strcmp(id, BP_HOST_VIEW_ID) != 0) return status;
  inner_view = (const bp_host_view*)*out;
  view = *inner_view;
  view.head.flags = flags;
  view.map = map;
  view.unmap = unmap;
  *out = &view.head;
  return BP_OK;
}

static void change(const bp_host* host) {
  flags = strchr(host->config, '=') ? (uint32_t)strtoul(strchr(host->config, '=') + 1, NULL, 0) : 0;
  table.query_ext = query_ext;
}
