// tests/driver/broken/vmm.cpp: defects of the family vmm.
#include "shim.h"

namespace broken {
namespace {

constexpr int32_t ok = BP_OK;

}  // namespace

void add_vmm_defects(Defects& d) {
  d["vmm.granularity"] = [](Shim& s) {
    s.vmm.granularity = [](void* self, int32_t device, uint64_t* out) {
      const int32_t status = INNER_GROUP(of(self).in_vmm, granularity, device, out);
      if (status == ok) *out = *out * 3;
      return status;
    };
  };
  d["vmm.memory"] = [](Shim& s) {
    // A copy ends where its first mapping ends.
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      uint64_t unit = 0;
      INNER_GROUP(of(self).in_vmm, granularity, 0, &unit);
      const uint64_t at = src_device == BP_HOST_DEVICE ? dst : src;
      const uint64_t rest = unit - at % unit;
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes < rest ? bytes : rest, flags);
    };
  };
  d["vmm.account"] = [](Shim& s) {
    // Memory is taken when addresses are set aside.
    s.vmm.reserve = [](void* self, int32_t device, uint64_t bytes, uint64_t* out) {
      INNER(of(self), alloc, device, uint64_t{1} << 20, 0u, &of(self).address);
      return INNER_GROUP(of(self).in_vmm, reserve, device, bytes, out);
    };
  };
  d["vmm.untouched"] = [](Shim& s) {
    // Whatever is not memory is written to nowhere.
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      const int32_t status = INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
      return status == BP_INVALID_ARGUMENT ? ok : status;
    };
  };
  d["vmm.invalid"] = [](Shim& s) {
    s.vmm.unmap = [](void* self, int32_t device, uint64_t address, uint64_t bytes) {
      const int32_t status = INNER_GROUP(of(self).in_vmm, unmap, device, address, bytes);
      return status == BP_INVALID_ARGUMENT ? ok : status;
    };
  };
}

}  // namespace broken
