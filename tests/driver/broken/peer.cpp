// tests/driver/broken/peer.cpp: defects of the family peer.
#include "shim.h"

namespace broken {
namespace {

constexpr int32_t ok = BP_OK;

}  // namespace

void add_peer_defects(Defects& d) {
  d["peer.access"] = [](Shim& s) {
    s.peer.enable = [](void* self, int32_t device, int32_t peer) {
      if (++of(self).calls > 1) return int32_t{BP_INVALID_ARGUMENT};  // "already enabled"
      return INNER_GROUP(of(self).in_peer, enable, device, peer);
    };
  };
  d["peer.invalid"] = [](Shim& s) {
    s.peer.can_access = [](void* self, int32_t device, int32_t peer, int32_t* out) {
      if (INNER_GROUP(of(self).in_peer, can_access, device, peer, out) != BP_OK) *out = 0;
      return ok;
    };
  };
  d["peer.copies"] = [](Shim& s) {
    s.table.copy_async = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
      if (between_devices(dst_device, src_device)) return ok;
      return INNER(of(self), copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
}

}  // namespace broken
