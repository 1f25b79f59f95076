/* tests/device/drivers/hide_groups.c: a shim without the optional groups that its options name: "bp.host_exec+bp.vmm", as a
   driver that does not support them. */
#include "shim.h"

static const char* hidden = "";

static int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const size_t length = strlen(id);
  for (const char* at = hidden; (at = strstr(at, id)) != NULL; ++at) {
    if ((at == hidden || at[-1] == '+') && (at[length] == '\0' || at[length] == '+')) return BP_UNSUPPORTED;
  }
  return inner->query_ext ? inner->query_ext(self, id, version, out) : BP_UNSUPPORTED;
}

static void change(const bp_host* host) {
  hidden = strchr(host->config, '=') ? strchr(host->config, '=') + 1 : "";
  table.query_ext = query_ext;
}
