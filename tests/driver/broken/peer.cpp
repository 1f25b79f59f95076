// tests/driver/broken/peer.cpp: defects of the family peer.
#include "shim.h"

namespace broken {

void add_peer_defects(Defects& d) {
  d["peer.access"] = instead<&bp_peer::enable, [](Shim& s, int32_t device, int32_t peer) {
    if (1 < ++s.calls) return int32_t{BP_INVALID_ARGUMENT};  // "already enabled"
    return INNER_GROUP(s.in_peer, enable, device, peer);
  }>;
  d["peer.invalid"] = instead<&bp_peer::can_access, [](Shim& s, int32_t device, int32_t peer, int32_t* out) {
    if (INNER_GROUP(s.in_peer, can_access, device, peer, out) != BP_OK) *out = 0;
    return ok;
  }>;
  d["peer.copies"] = instead<&bp_driver::copy_async, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device,
                                                        uint64_t src, int32_t src_device, uint64_t bytes, uint32_t flags) {
    if (between_devices(dst_device, src_device)) return ok;
    return INNER(s, copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
  }>;
}

}  // namespace broken
