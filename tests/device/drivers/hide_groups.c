/* tests/device/drivers/hide_groups.c: a shim without the optional groups that its options name: "bp.host_exec+bp.vmm". It shows what a
   driver gets that does not offer them. */
#include <string.h>

#include <backplane/driver.h>

static const bp_driver* inner = NULL;
static const char* hidden = "";
static bp_driver table;

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const size_t length = strlen(id);
  for (const char* at = hidden; (at = strstr(at, id)) != NULL; ++at) {
    if ((at == hidden || at[-1] == '+') && (at[length] == '\0' || at[length] == '+')) return BP_UNSUPPORTED;
  }
  return inner->query_ext ? inner->query_ext(self, id, version, out) : BP_UNSUPPORTED;
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  inner = host->inner;
  hidden = strchr(host->config, '=') ? strchr(host->config, '=') + 1 : "";
  table = *inner; /* entries that go straight through get the inner driver's self */
  table.query_ext = query_ext;
  *out = &table;
  return BP_OK;
}
