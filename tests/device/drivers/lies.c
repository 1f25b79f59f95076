/* tests/device/drivers/lies.c: a shim that breaks the contract as its option names ("lies.about=host_alloc"), in ways that the core must
   check. */
#include "shim.h"

static char about[64];

static int is(const char* what) { return strcmp(about, what) == 0; }

static int32_t properties(void* self, int32_t device, bp_device_properties* out) {
  const int32_t status = inner->device_properties(self, device, out);
  if (is("priorities")) out->priority_greatest = INT32_MIN, out->priority_least = INT32_MAX;
  if (is("copy_alignment of 3")) out->copy_alignment = 3;
  if (is("copy_alignment of 2^30")) out->copy_alignment = 1u << 30;
  return status;
}

static int32_t alloc(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
  if (is("alloc in time")) return BP_TIMEOUT;
  const int32_t status = inner->alloc(self, device, bytes, flags, out);
  if (is("alloc of an odd address")) *out += 64;
  if (is("alloc")) *out = 0;
  return status;
}

static int32_t copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                    uint64_t bytes, uint32_t flags) {
  if (is("copy in time")) return BP_TIMEOUT;
  return inner->copy(self, device, stream, dst, dst_device, src, src_device, bytes, flags);
}

static int32_t host_alloc(void* self, uint64_t bytes, uint32_t flags, void** out) {
  if (!is("host_alloc")) return inner->host_alloc(self, bytes, flags, out);
  *out = NULL;
  return BP_OK;
}

static int32_t stream_create(void* self, int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
  if (!is("stream_create")) return inner->stream_create(self, device, priority, flags, out);
  *out = NULL;
  return BP_OK;
}

static int32_t event_create(void* self, int32_t device, uint32_t flags, bp_event** out) {
  if (!is("event_create")) return inner->event_create(self, device, flags, out);
  *out = NULL;
  return BP_OK;
}

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  static bp_ext other;
  const int32_t status = inner->query_ext(self, id, version, out);
  if (status != BP_OK || strcmp(id, "bp.peer") != 0) return status;
  other = **out;
  if (is("a group's id")) other.id = "bp.other";
  if (is("a group's version")) other.version = 7;
  if (is("a group's id") || is("a group's version")) *out = &other;
  return BP_OK;
}

static void change(const bp_host* host) {
  const char* option = strstr(host->config, "about=");
  if (option != NULL) strncpy(about, option + strlen("about="), sizeof about - 1);
  table.device_properties = properties;
  table.alloc = alloc;
  table.copy = copy;
  table.host_alloc = host_alloc;
  table.stream_create = stream_create;
  table.event_create = event_create;
  table.query_ext = query_ext;
}
