// tests/driver/broken/vmm.cpp: defects of the family vmm.
#include "shim.h"

namespace broken {

void add_vmm_defects(Defects& d) {
  d["vmm.granularity"] = after<&bp_vmm::granularity, [](Shim& s, int32_t status, int32_t device, uint64_t* out) {
    if (status == ok) *out = *out * 3;
    return status;
  }>;
  // A copy ends where its first mapping ends.
  d["vmm.memory"] = instead<&bp_driver::copy, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                                                 int32_t src_device, uint64_t bytes, uint32_t flags) {
    uint64_t unit = 0;
    INNER_GROUP(s.in_vmm, granularity, 0, &unit);
    const uint64_t at = src_device == BP_HOST_DEVICE ? dst : src;
    const uint64_t rest = unit - at % unit;
    return INNER(s, copy, device, stream, dst, dst_device, src, src_device, bytes < rest ? bytes : rest, flags);
  }>;
  // Memory is taken when addresses are set aside.
  d["vmm.account"] = instead<&bp_vmm::reserve, [](Shim& s, int32_t device, uint64_t bytes, uint64_t* out) {
    INNER(s, alloc, device, uint64_t{1} << 20, 0u, &s.address);
    return INNER_GROUP(s.in_vmm, reserve, device, bytes, out);
  }>;
  // Whatever is not memory is written to nowhere.
  d["vmm.untouched"] = after<&bp_driver::copy, [](Shim& s, int32_t status, int32_t device, bp_stream* stream, uint64_t dst,
                                                  int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                                                  uint32_t flags) { return status == BP_INVALID_ARGUMENT ? ok : status; }>;
  d["vmm.invalid"] = after<&bp_vmm::unmap, [](Shim& s, int32_t status, int32_t device, uint64_t address, uint64_t bytes) {
    return status == BP_INVALID_ARGUMENT ? ok : status;
  }>;
}

}  // namespace broken
