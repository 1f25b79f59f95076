// tests/driver/broken/memory.cpp: defects of the families memory, copy, pinned, fill and pointer.
#include <string.h>

#include "shim.h"

namespace broken {
namespace {

// fill that reads the caller's pattern when the work runs.
struct LateFill {
  Shim* shim;
  int32_t device;
  uint64_t dst;
  const void* pattern;
  uint32_t size;
  uint64_t count;
};

int32_t run_fill(void* arg) {
  const auto* f = static_cast<LateFill*>(arg);
  void* memory = nullptr;
  const int32_t status = INNER_GROUP(f->shim->in_host_exec, map, f->device, f->dst, &memory);
  for (uint64_t i = 0; status == BP_OK && i < f->count; ++i) memcpy(static_cast<char*>(memory) + i * f->size, f->pattern, f->size);
  return status;
}

}  // namespace

void add_memory_defects(Defects& d) {
  d["memory.patterns"] =
      after<&bp_driver::alloc, [](Shim& s, int32_t status, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
        if (++s.calls % 5 == 0) *out = s.address;  // gives the same memory twice
        s.address = *out;
        return status;
      }>;
  d["memory.alignment"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes + 64, flags, out);
      if (status == BP_OK) *out += 64;
      return status;
    };
    s.table.free = [](void* self, int32_t device, uint64_t address) { return INNER(of(self), free, device, address - 64); };
  };
  d["memory.zero"] = instead<&bp_driver::alloc, [](Shim& s, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    if (bytes) return INNER(s, alloc, device, bytes, flags, out);
    *out = 0;
    return int32_t{BP_OK};
  }>;
  d["memory.unique"] = after<&bp_driver::alloc, [](Shim& s, int32_t status, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    if (device == 0) s.address = *out;
    if (device == 1 && s.address) *out = s.address;
    return status;
  }>;
  d["memory.bad_free"] = instead<&bp_driver::free, [](Shim& s, int32_t device, uint64_t address) {
    INNER(s, free, device, address);
    return int32_t{BP_OK};
  }>;
  d["memory.wrong_device"] = instead<&bp_driver::free, [](Shim& s, int32_t device, uint64_t address) {
    if (INNER(s, free, device, address) == BP_OK) return int32_t{BP_OK};
    return INNER(s, free, 1 - device, address);
  }>;
  d["memory.out_of_memory"] = instead<&bp_driver::alloc, [](Shim& s, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    if (s.calls) return int32_t{BP_OUT_OF_MEMORY};  // sticky
    const int32_t status = INNER(s, alloc, device, bytes, flags, out);
    if (status == BP_OUT_OF_MEMORY) ++s.calls;
    return status;
  }>;
  d["memory.reuse"] = [](Shim& s) { s.table.free = [](void*, int32_t, uint64_t) { return int32_t{BP_OK}; }; };

  d["alloc_timeout"] = [](Shim& s) { s.table.alloc = [](void*, int32_t, uint64_t, uint32_t, uint64_t*) { return int32_t{BP_TIMEOUT}; }; };
  d["copy_timeout"] = instead<&bp_driver::copy, [](Shim&, int32_t, bp_stream*, uint64_t, int32_t, uint64_t, int32_t, uint64_t, uint32_t) {
    return int32_t{BP_TIMEOUT};
  }>;
  d["null_pinned"] = instead<&bp_driver::host_alloc, [](Shim&, uint64_t, uint32_t, void** out) {
    *out = nullptr;
    return int32_t{BP_OK};
  }>;

  d["copy.kinds"] = instead<&bp_driver::copy, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                                                 int32_t src_device, uint64_t bytes, uint32_t flags) {
    if (bytes >= 1 << 20) --bytes;
    return INNER(s, copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
  }>;
  d["copy.odd"] = instead<&bp_driver::copy, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                                               int32_t src_device, uint64_t bytes, uint32_t flags) {
    return INNER(s, copy, device, stream, dst, dst_device, src, src_device, bytes / 4 * 4, flags);
  }>;
  d["copy.zero"] = instead<&bp_driver::copy, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                                                int32_t src_device, uint64_t bytes, uint32_t flags) {
    if (!bytes) return int32_t{BP_INVALID_ARGUMENT};
    return INNER(s, copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
  }>;
  // A copy to the device reads its source only at the next copy.
  d["copy.arrived"] = instead<&bp_driver::copy, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device,
                                                   uint64_t src, int32_t src_device, uint64_t bytes, uint32_t flags) {
    for (const std::vector<uint64_t>& h : s.held) {
      INNER(s, copy, static_cast<int32_t>(h[0]), nullptr, h[1], static_cast<int32_t>(h[0]), h[2], BP_HOST_DEVICE, h[3], 0u);
    }
    s.held.clear();
    if (src_device != BP_HOST_DEVICE) return INNER(s, copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    s.held.push_back({static_cast<uint64_t>(device), dst, src, bytes});
    return int32_t{BP_OK};
  }>;
  d["copy.ordered"] = instead<&bp_driver::copy, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device,
                                                   uint64_t src, int32_t src_device, uint64_t bytes, uint32_t flags) {
    if (device == 0) stream = side_stream(s);
    return INNER(s, copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
  }>;
  d["copy.async"] = instead<&bp_driver::copy_async, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device,
                                                       uint64_t src, int32_t src_device, uint64_t bytes, uint32_t flags) {
    if (src_device == dst_device) return int32_t{BP_OK};
    return INNER(s, copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
  }>;
  d["copy.returns_at_once"] =
      instead<&bp_driver::copy_async, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                                         int32_t src_device, uint64_t bytes, uint32_t flags) {
        return INNER(s, copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
      }>;
  d["copy.devices"] = instead<&bp_driver::copy, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device,
                                                   uint64_t src, int32_t src_device, uint64_t bytes, uint32_t flags) {
    if (between_devices(dst_device, src_device)) return int32_t{BP_INVALID_ARGUMENT};
    return INNER(s, copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
  }>;

  d["pinned.alloc"] = [](Shim& s) {
    s.table.host_alloc = [](void* self, uint64_t bytes, uint32_t flags, void** out) {
      const int32_t status = INNER(of(self), host_alloc, bytes + 8, flags, out);
      if (status == BP_OK) *out = static_cast<char*>(*out) + 8;
      return status;
    };
    s.table.host_free = [](void* self, void* ptr) { return INNER(of(self), host_free, static_cast<char*>(ptr) - 8); };
  };
  d["pinned.out_of_memory"] = instead<&bp_driver::host_alloc, [](Shim& s, uint64_t bytes, uint32_t flags, void** out) {
    *out = nullptr;
    return INNER(s, host_alloc, bytes, flags, out);
  }>;
  d["pinned.zero"] = instead<&bp_driver::host_free, [](Shim& s, void* ptr) { return ptr ? INNER(s, host_free, ptr) : int32_t{BP_OK}; }>;
  d["pinned.register"] = [](Shim& s) {
    s.table.host_register = [](void*, void*, uint64_t) { return int32_t{BP_OK}; };
    s.table.host_unregister = [](void*, void*) { return int32_t{BP_OK}; };
  };

  d["fill.patterns"] = instead<&bp_driver::fill, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, const void* pattern,
                                                    uint32_t size, uint64_t count, uint32_t flags) {
    if (size == 8) return INNER(s, fill, device, stream, dst, pattern, 4u, count * 2, flags);
    return INNER(s, fill, device, stream, dst, pattern, size, count, flags);
  }>;
  d["fill.pattern_is_read"] = instead<&bp_driver::fill, [](Shim& s, int32_t device, bp_stream* stream, uint64_t dst, const void* pattern,
                                                           uint32_t size, uint64_t count, uint32_t flags) {
    if (flags) return int32_t{BP_INVALID_ARGUMENT};
    auto* f = new LateFill{&s, device, dst, pattern, size, count};
    return INNER_GROUP(s.in_host_exec, enqueue, device, stream, run_fill, f, [](void* arg) { delete static_cast<LateFill*>(arg); });
  }>;

  d["pointer.device"] = after<&bp_driver::pointer_info, [](Shim& s, int32_t status, uint64_t address, bp_pointer_info* out) {
    if (status == BP_OK && out->kind == BP_MEMORY_DEVICE) out->base = address;
    return status;
  }>;
  d["pointer.host"] = after<&bp_driver::pointer_info, [](Shim& s, int32_t status, uint64_t address, bp_pointer_info* out) {
    return status == BP_OK && out->kind == BP_MEMORY_UNKNOWN ? int32_t{BP_INVALID_ARGUMENT} : status;
  }>;
  d["pointer.registered"] = after<&bp_driver::pointer_info, [](Shim& s, int32_t status, uint64_t address, bp_pointer_info* out) {
    if (status == BP_OK && out->kind == BP_MEMORY_REGISTERED) out->kind = BP_MEMORY_PINNED;
    return status;
  }>;
}

}  // namespace broken
