// check_driver/checks_ext.cpp: family "ext": how optional groups are found.
#include <string.h>

#include "context.h"

namespace backplane::check {
namespace ext_impl {

constexpr char rule[] = "An optional group by name and version. owner: the driver, until close. errors: UNSUPPORTED. Before open, too";

struct Known {
  const char* id;
  uint32_t version;
  uint64_t size;
};
constexpr Known known_groups[] = {
    {BP_HOST_EXEC_ID, BP_HOST_EXEC_VERSION, sizeof(bp_host_exec)},
    {BP_HOST_VIEW_ID, BP_HOST_VIEW_VERSION, sizeof(bp_host_view)},
    {BP_PEER_ID, BP_PEER_VERSION, sizeof(bp_peer)},
    {BP_VMM_ID, BP_VMM_VERSION, sizeof(bp_vmm)},
    {BP_IPC_ID, BP_IPC_VERSION, sizeof(bp_ipc)},
};

void unknown(Context& c) {
  bp_ext mark{};
  const auto expect_unsupported = [&](const char* id, uint32_t version) {
    const bp_ext* out = &mark;
    c.expect(CALL(c, query_ext, id, version, &out), BP_UNSUPPORTED, rule);
    c.require(out == &mark, rules::errors, "query_ext(\"%s\", %u) failed and yet set *out", id, version);
  };
  expect_unsupported("bp.no_such_group", 1);
  expect_unsupported("", 1);
  for (const Known& group : known_groups) {
    expect_unsupported(group.id, group.version + 999);
    expect_unsupported(group.id, 0);
  }
}

void heads(Context& c) {
  int offered = 0;
  for (const Known& group : known_groups) {
    const bp_ext* ext = nullptr;
    const int32_t status = CALL(c, query_ext, group.id, group.version, &ext);
    if (status == BP_UNSUPPORTED) continue;
    c.expect(status, BP_OK, rule);
    c.require(ext != nullptr, rule, "query_ext(\"%s\") gave BP_OK and no group", group.id);
    c.require(ext->struct_size == group.size, "struct_size: of the whole group", "%s: struct_size is %llu, expected %llu", group.id,
              static_cast<unsigned long long>(ext->struct_size), static_cast<unsigned long long>(group.size));
    c.require(ext->id && !strcmp(ext->id, group.id), "Start of every optional group that query_ext answers with", "%s: its id says \"%s\"",
              group.id, ext->id ? ext->id : "(NULL)");
    c.require(ext->version == group.version, "Start of every optional group that query_ext answers with",
              "%s: its version says %u, asked was %u", group.id, ext->version, group.version);
    for (uint64_t at = sizeof(bp_ext); at < group.size; at += sizeof(void*)) {
      void* slot = nullptr;
      memcpy(&slot, reinterpret_cast<const char*>(ext) + at, sizeof slot);
      c.require(slot != nullptr, rule, "%s: entry %llu is NULL", group.id,
                static_cast<unsigned long long>((at - sizeof(bp_ext)) / sizeof(void*)));
    }
    ++offered;
  }
  c.open();
  for (const Known& group : known_groups) {
    const bp_ext* ext = nullptr;
    if (CALL(c, query_ext, group.id, group.version, &ext) == BP_OK) --offered;
  }
  c.require(offered == 0, rule, "query_ext answers otherwise after open than before it");
}

}  // namespace ext_impl

Checks ext_checks() {
  using namespace ext_impl;
  constexpr uint32_t needs = needs_query_ext | needs_no_device | starts_closed;
  return {
      {"ext.unknown", "unknown names and versions are UNSUPPORTED", needs, unknown},
      {"ext.heads", "groups are whole and say what they are", needs, heads},
  };
}

}  // namespace backplane::check
