// check_driver/checks_ext.cpp: family "ext": how optional groups are found.
#include <string.h>

#include "context.h"

namespace backplane::check {
namespace ext_impl {

constexpr char rule[] = "An optional group by name and version. owner: the driver, until close. errors: UNSUPPORTED. Before open, too";

void unknown(Context& c) {
  bp_ext mark{};
  const auto expect_unsupported = [&](const char* id, uint32_t version) {
    const bp_ext* out = &mark;
    c.expect(CALL(c, query_ext, id, version, &out), BP_UNSUPPORTED, rule);
    c.require(out == &mark, rules::errors, "query_ext(\"%s\", %u) failed and yet set *out", id, version);
  };
  expect_unsupported("bp.no_such_group", 1);
  expect_unsupported("", 1);
  driver::for_each_group([&](auto group) {
    expect_unsupported(group.id, group.version + 999);
    expect_unsupported(group.id, 0);
  });
}

void heads(Context& c) {
  int offered = 0;
  driver::for_each_group([&](auto group) {
    constexpr uint64_t size = sizeof(typename decltype(group)::Group);
    const bp_ext* ext = nullptr;
    uint32_t version = group.version;
    int32_t status = CALL(c, query_ext, group.id, version, &ext);
    while (status == BP_UNSUPPORTED && --version > 0) status = CALL(c, query_ext, group.id, version, &ext);
    if (status == BP_UNSUPPORTED) return;
    c.expect(status, BP_OK, rule);
    c.require(ext != nullptr, rule, "query_ext(\"%s\") gave BP_OK and no group", group.id);
    c.require(ext->struct_size == size, "struct_size: of the whole group", "%s: struct_size is %llu, expected %llu", group.id,
              wide(ext->struct_size), wide(size));
    c.require(ext->id && !strcmp(ext->id, group.id), "Start of every optional group that query_ext answers with", "%s: its id says \"%s\"",
              group.id, ext->id ? ext->id : "(NULL)");
    c.require(ext->version == version, "Start of every optional group that query_ext answers with", "%s: its version says %u, asked was %u",
              group.id, ext->version, version);
    const char* missing = driver::missing_slot<typename decltype(group)::Group>(*ext);
    c.require(missing == nullptr, rule, "%s: entry %s is NULL", group.id, missing);
    ++offered;
  });
  c.open();
  driver::for_each_group([&](auto group) {
    const bp_ext* ext = nullptr;
    for (uint32_t version = group.version; version > 0 && !ext; --version) {
      if (CALL(c, query_ext, group.id, version, &ext) == BP_OK) --offered;
    }
  });
  c.require(offered == 0, rule, "query_ext answers otherwise after open than before it");
}

}  // namespace ext_impl

Checks ext_checks() {
  using namespace ext_impl;
  constexpr uint64_t needs = needs_query_ext | needs_no_device | starts_closed;
  return {
      {"ext.unknown", "unknown names and versions are UNSUPPORTED", needs, unknown},
      {"ext.heads", "groups are whole and say what they are", needs, heads},
  };
}

}  // namespace backplane::check
