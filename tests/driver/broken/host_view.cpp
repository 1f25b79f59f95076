// tests/driver/broken/host_view.cpp: defects of the family host_view.
#include <string.h>

#include "shim.h"

namespace broken {
namespace {

// Views of a copy, written back by unmap if `keep`.
void shadow_views(Shim& s, bool keep) {
  s.host_view.map = [](void* self, int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    void* memory = nullptr;
    const int32_t status = INNER_GROUP(of(self).in_host_view, map, device, address, bytes, access, &memory);
    if (status != BP_OK) return status;
    std::string& shadow = of(self).shadows[address];
    shadow.assign(static_cast<char*>(memory), bytes);
    *out = shadow.data();
    return ok;
  };
  s.host_view.unmap = [](void*, int32_t, uint64_t, void*) { return ok; };
  if (!keep) return;
  s.host_view.unmap = [](void* self, int32_t, uint64_t address, void*) {
    const std::string& shadow = of(self).shadows[address];
    memcpy(reinterpret_cast<void*>(address), shadow.data(), shadow.size());  // the sound driver's views have the same address
    of(self).shadows.erase(address);
    return ok;
  };
}

}  // namespace

void add_host_view_defects(Defects& d) {
  d["host_view.map"] = [](Shim& s) { shadow_views(s, false); };
  d["host_view.flags"] = [](Shim& s) { shadow_views(s, true); };
  d["host_view.invalid"] = instead<&bp_host_view::map, [](Shim&, int32_t, uint64_t address, uint64_t, int32_t, void** out) {
    *out = reinterpret_cast<void*>(address);
    return ok;
  }>;
}

}  // namespace broken
