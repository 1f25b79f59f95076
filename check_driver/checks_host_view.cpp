// check_driver/checks_host_view.cpp: family "host_view": device memory in place, and whether the flags are true.
#include <string.h>

#include "context.h"

namespace backplane::check {
namespace host_view_impl {

constexpr char rule[] = "Makes [address, address + bytes) readable or writable by the host at *out. Acquires what the device wrote";

uint8_t* map(Context& c, const bp_host_view& view, int32_t device, uint64_t address, uint64_t bytes, int32_t access) {
  void* memory = nullptr;
  c.expect(CALL_GROUP(view, map, device, address, bytes, access, &memory), BP_OK, rule);
  c.require(memory != nullptr, rule, "%s gave BP_OK and NULL", traced_call());
  return static_cast<uint8_t*>(memory);
}

void unmap(Context& c, const bp_host_view& view, int32_t device, uint64_t address, uint8_t* memory) {
  c.expect(CALL_GROUP(view, unmap, device, address, memory), BP_OK, "Ends a view; releases host writes to work that is queued later");
}

void views(Context& c) {
  const bp_host_view view = *c.group<bp_host_view>();
  for (int32_t d = 0; d < c.devices(); ++d) {
    const uint64_t bytes = c.some_bytes(d), middle = bytes / 2;
    const uint64_t a = c.alloc(d, bytes);
    HostBuffer data(bytes);
    data.fill_pattern(3);
    c.upload(d, a, data.data(), bytes);
    c.synchronize(d);
    uint8_t* p = map(c, view, d, a, bytes, BP_ACCESS_READ);
    c.same(p, data.data(), bytes, rule, "device memory read through a view");
    unmap(c, view, d, a, p);
    p = map(c, view, d, a + middle, bytes - middle, BP_ACCESS_READ_WRITE);
    c.same(p, data.data() + middle, bytes - middle, rule, "a view that starts inside the allocation");
    memset(p, 0x99, bytes - middle);
    unmap(c, view, d, a + middle, p);
    memset(data.data() + middle, 0x99, bytes - middle);
    c.holds(d, a, data.data(), bytes, "releases host writes to work that is queued later", "device memory written through a view");
    p = map(c, view, d, a, bytes, BP_ACCESS_WRITE);
    memset(p, 0x66, bytes);
    unmap(c, view, d, a, p);
    memset(data.data(), 0x66, bytes);
    c.holds(d, a, data.data(), bytes, "releases host writes to work that is queued later",
            "device memory written through a view for writing");
    c.free(d, a);
  }
}

void flags(Context& c) {
  const bp_host_view view = *c.group<bp_host_view>();
  const uint32_t flags = view.head.flags;
  constexpr uint32_t known = BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ;
  c.require(!(flags & ~known), "The flags say what a view is worth", "head.flags 0x%x has bits that are no BP_HOST_VIEW flag", flags);
  const uint64_t bytes = c.some_bytes(0);
  const uint64_t a = c.alloc(0, bytes);
  HostBuffer data(bytes, 1);
  c.upload(0, a, data.data(), bytes);
  c.synchronize(0);
  uint8_t* p = map(c, view, 0, a, bytes, BP_ACCESS_READ_WRITE);
  if (flags & BP_HOST_VIEW_SAME_ADDRESS) {
    c.require(reinterpret_cast<uint64_t>(p) == a, "BP_HOST_VIEW_SAME_ADDRESS: the host pointer equals the device address",
              "the flag is set, and map(0x%llx) gave %p", wide(a), static_cast<void*>(p));
  }
  if (flags & BP_HOST_VIEW_COHERENT) {
    const char* coherent = "BP_HOST_VIEW_COHERENT: no map/unmap needed for visibility once the stream is synchronized";
    memset(data.data(), 2, bytes);
    c.upload(0, a, data.data(), bytes);
    c.synchronize(0);
    c.same(p, data.data(), bytes, coherent, "an open view after the device wrote");
    memset(p, 3, bytes);
    memset(data.data(), 3, bytes);
    c.holds(0, a, data.data(), bytes, coherent, "device memory after the host wrote to an open view");
  }
  unmap(c, view, 0, a, p);
}

void invalid(Context& c) {
  const char* error_rule = "The range lies inside one allocation. errors: INVALID_ARGUMENT, UNSUPPORTED";
  const bp_host_view view = *c.group<bp_host_view>();
  int on_host = 0;
  void* out = &on_host;
  for (uint64_t address : {uint64_t{0x10}, reinterpret_cast<uint64_t>(&on_host)}) {
    c.expect(CALL_GROUP(view, map, 0, address, 4, BP_ACCESS_READ, &out), BP_INVALID_ARGUMENT, error_rule);
    c.require(out == &on_host, rules::errors, "%s failed and yet set *out", traced_call());
  }
}

}  // namespace host_view_impl

Checks host_view_checks() {
  using namespace host_view_impl;
  return {
      {"host_view.map", "the host reads and writes in place", needs_host_view, views},
      {"host_view.flags", "same address and coherence are as claimed", needs_host_view, flags},
      {"host_view.invalid", "memory that is not the device's is refused", needs_host_view, invalid},
  };
}

}  // namespace backplane::check
